"""Command line.

`commands` declares the commands; `options` makes their options of the declarations, and `config` a configuration. Modules named
after the work do it, and `rendering` prints results. A command imports numpy, onnx and other libraries when it runs, so that
`layoutopt --help` takes 0.1 s.
"""

from layoutopt.cli.entry import main, run

__all__ = ["main", "run"]
