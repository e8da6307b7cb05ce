"""The results of `ci` for GitHub: annotations as workflow commands, and the step summary as Markdown.

GitHub shows the first ten errors and the first ten warnings of a step, so ops that remain have no annotations.
"""

from collections.abc import Mapping, Sequence

from layoutopt.gates.report import Finding, GateReport, ModelResult, is_in_repository, uri_path
from layoutopt.report.printable import printable

_MARKDOWN = frozenset("\\`*_{}[]<>()#+!|~&@")


def annotations(report: GateReport) -> list[str]:
    """One workflow command per failed check, then one per warning."""
    errors = [_command("error", model, each) for model in report.models for each in model.errors]
    warnings = [_command("warning", model, each) for model in report.models for each in model.warnings]
    return errors + warnings


def _command(name: str, model: ModelResult, finding: Finding) -> str:
    properties = {"title": f"layoutopt {finding.rule}"}
    if is_in_repository(model.uri):
        properties = {"file": uri_path(model.uri), **properties}
    pairs = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {pairs}::{_data(f'{model.model}: {finding.message}')}"


def _data(text: str) -> str:
    """The text of a workflow command, with line breaks and percent signs escaped and other control characters replaced."""
    return printable(text, kept="\r\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The value of a property of a workflow command, with colons and commas escaped as well."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(report: GateReport, rows: Sequence[Mapping[str, str]]) -> str:
    """The step summary: a table of the models, then the failed checks and warnings.

    Args:
        report: the results.
        rows: the rows of the table, by the titles of its columns.
    """
    header = list(dict.fromkeys(key for row in rows for key in row))
    cells = ([markdown(row.get(key, "")) for key in header] for row in rows)
    lines = [
        f"### layoutopt ci: {markdown(report.target)}, runtime {markdown(report.runtime)}",
        "",
        *(f"| {' | '.join(each)} |" for each in (header, ["---"] * len(header), *cells)),
        "",
        *(
            f"- **{markdown(model.model)}**: {each.level}: {markdown(each.message)}"
            for model in report.models
            for each in (*model.errors, *model.warnings)
        ),
    ]
    return "\n".join([*lines, ""])


def markdown(text: str) -> str:
    """The text with the characters of Markdown and HTML as entities, and control characters replaced."""
    return "".join(f"&#{ord(char)};" if char in _MARKDOWN else char for char in printable(text))
