"""The results of `ci` as annotations of GitHub: workflow commands."""

import os
from pathlib import Path

from layoutopt.files import path_text
from layoutopt.gates.report import Finding, GateReport, ModelResult
from layoutopt.report.printable import printable


def annotations(report: GateReport, root: Path) -> list[str]:
    """One workflow command per failed check, then one per warning; files are named from the folder of the repository."""
    found = [(model, each) for model in report.models for each in model.findings]
    return [_command(model, each, root) for model, each in sorted(found, key=lambda pair: pair[1].level != "error")]


def _command(model: ModelResult, finding: Finding, root: Path) -> str:
    properties = {"title": f"layoutopt {finding.check}"}
    path, folder = (Path(os.path.abspath(each)) for each in (model.model, root))
    if path.is_relative_to(folder):
        properties = {"file": path_text(path.relative_to(folder)), **properties}
    pairs = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    kind = "error" if finding.level == "error" else "warning"
    return f"::{kind} {pairs}::{_data(f'{model.model}: {finding.message}')}"


def _data(text: str) -> str:
    """The text of a workflow command, with line breaks and percent signs escaped and other control characters replaced."""
    return printable(text, kept="\r\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The value of a property of a workflow command, with colons and commas escaped as well."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
