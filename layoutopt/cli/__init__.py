"""Command line: one module per command.

A command module declares arguments and help texts, and calls the API. Its package `rendering` prints results, `options` parses
shared options, `files` writes files. A command imports numpy, onnx and its other libraries when it runs, so that
`layoutopt --help` takes 0.1 s.
"""

from layoutopt.cli.entry import main, run

__all__ = ["main", "run"]
