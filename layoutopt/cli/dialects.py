"""`layoutopt dialects`."""

from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile


def dialects(json: JsonFile = None, force: Force = False) -> None:
    """List the forms in which a plan is written as ONNX."""
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.rendering.dialects import print_dialects

    print_dialects(JsonRecord("dialects", json, force=force))
