"""The command line: typer commands that call the API and print what it says. No decision is made here.

A command's signature is light, and what it needs is imported when it runs, so that `layoutopt --help` answers at once.
"""

from layoutopt.cli.entry import main

__all__ = ["main"]
