"""The output of `dialects`."""

import sys

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, indented, show, styled_line, text
from layoutopt.cost_models import load_target, target_names
from layoutopt.dialects import DIALECTS, Dialect


def print_dialects(json: JsonRecord) -> None:
    """Print the dialects, each with the targets whose default it is."""
    targets: dict[str, list[str]] = {name: [] for name in DIALECTS}
    for target in target_names():
        targets.setdefault(load_target(target).dialect, []).append(target)
    records = [
        {
            "name": name,
            "writes": _description(dialect),
            "default_of": targets[name],
            "passes": [each.name for each in dialect.passes],
        }
        for name, dialect in DIALECTS.items()
    ]
    json.write({"dialects": records})
    if json.is_printed:
        return
    for record in records:
        default = f"default of {', '.join(record['default_of'])}" if record["default_of"] else ""
        show(styled_line((str(record["name"]), "bold"), "  ", (default, "dim")), indented(text(record["writes"])))
        show(indented(text(f"passes: {', '.join(record['passes'])}", "dim")))
    footnote("Choose a dialect with --config dialect=NAME.")


def _description(dialect: Dialect) -> str:
    """The first paragraph of the docstring of the dialect's module, without the dialect's name."""
    docstring = sys.modules[type(dialect).__module__].__doc__ or ""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(": ")[2] or (type(dialect).__doc__ or "").strip().split("\n")[0]
