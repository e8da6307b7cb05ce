"""The output of `ci`: a table of the models, and the failed checks and warnings."""

from layoutopt.cli.rendering.terminal import Cell, indented, rendered, size, styled_line, table
from layoutopt.gates.report import GateReport, ModelResult

HEADER = ("model", "result", "layout changes", "bytes moved", "speed-up", "growth")
_STYLES = {"passed": "green", "error": "bold red", "over budget": "bold red", "regression": "bold red"}


def gates_text(report: GateReport) -> str:
    """The table of the models, and one line per failed check and warning."""
    rows: list[list[Cell]] = []
    for model in report.models:
        name, status, *numbers = cells(model)
        rows.append([(name, "bold"), (status, _STYLES[status]), *numbers])
    content = indented(table([*HEADER[:2], *(f">{each}" for each in HEADER[2:])], rows))
    lines = [
        styled_line(
            "  ", (f"{found.level}: ", "red" if found.level == "error" else "yellow"), f"{model.model}: {found.message}"
        )
        for model in report.models
        for found in (*model.errors, *model.warnings)
    ]
    title = styled_line(("layoutopt ci", "bold"), (f"  {_aside(report)}", "dim"))
    return rendered(title, styled_line(), content, *([styled_line(), *lines] if lines else []))


def _aside(report: GateReport) -> str:
    count = f"{len(report.models)} {'model' if len(report.models) == 1 else 'models'}"
    baseline = [f"baseline {report.baseline}"] if report.baseline else []
    if report.is_updated:
        baseline = [f"baseline {report.baseline} written"]
    elif report.baseline_version not in ("", report.layoutopt_version):
        baseline.append(f"which layoutopt {report.baseline_version} wrote, this is {report.layoutopt_version}")
    return ", ".join([report.target, f"runtime {report.runtime}", count, *baseline])


def cells(model: ModelResult) -> list[str]:
    """The cells of a model, in the order of `HEADER`; a number of the baseline that differs is in parentheses."""
    numbers, old = model.numbers, model.baseline
    if numbers is None:
        return [model.model, model.status, *[""] * len(HEADER[2:])]
    return [
        model.model,
        model.status,
        _changed(*(str(each.transposes + each.casts) if each else "" for each in (numbers, old))),
        _changed(size(numbers.bytes_moved), size(old.bytes_moved) if old else ""),
        _speed_up(model),
        f"{numbers.size_growth:.2f}x",
    ]


def _changed(now: str, then: str) -> str:
    return now if then in ("", now) else f"{now} ({then})"


def _speed_up(model: ModelResult) -> str:
    """The speed-up: the measured one, marked as such, or else the estimated one."""
    if model.measured_speed_up is not None:
        return f"{model.measured_speed_up:.2f}x measured"
    now = model.numbers.speed_up if model.numbers is not None else None
    then = model.baseline.speed_up if model.baseline is not None else None
    shown = _changed(*(f"{each:.2f}x" if each is not None else "" for each in (now, then)))
    return f"{shown} estimated" if shown else "-"
