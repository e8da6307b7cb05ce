"""Command line.

`commands` declares the commands; `options` makes their options of the declarations, and `config` a configuration. Modules named
after the work run them, and `rendering` prints results. Numpy, onnx and other libraries are imported when a command runs, so
that `layoutopt --help` takes 0.1 s.
"""

from layoutopt.cli.entry import main, run
