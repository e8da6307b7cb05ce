"""The command line: typer commands that call the API and print what it says. No decision is made here.

The signature of a command is light, and what the command needs is imported when it runs, so that
`layoutopt --help` answers at once.
"""

from layoutopt.cli.entry import main

__all__ = ["main"]
