"""`layoutopt runtimes`."""

from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile


def runtimes(json: JsonFile = None, force: Force = False) -> None:
    """List the runtimes that a model can be written for."""
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.rendering.runtimes import print_runtimes

    print_runtimes(JsonRecord("runtimes", json, force=force))
