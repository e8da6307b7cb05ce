"""`layoutopt passes`."""

from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile


def passes(json: JsonFile = None, force: Force = False) -> None:
    """List the passes in the order in which they run."""
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.rendering.passes import print_passes

    print_passes(JsonRecord("passes", json, force=force))
