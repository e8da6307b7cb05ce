"""What `bench` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from layoutopt.bench.bench_report import BenchReport, MachineReport, MedianEstimate, ModelReport
from layoutopt.bench.benchmark import bench
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.after_writing import after_writing
from layoutopt.cli.rendering.json_records import Record
from layoutopt.cli.rendering.progress import Steps
from layoutopt.cli.rendering.terminal import facts, line, remark, seconds, section, show, size, table, text
from layoutopt.errors import DimensionError, InputError
from layoutopt.sample_inputs import read_inputs

_SHORT = 15  # rows of ops
_STYLES = {"faster": "green", "slower": "red", "no difference shown": "yellow"}


def time_models(
    models: Sequence[Path],
    json: Path | None,
    *,
    with_ops: bool,
    force: bool,
    inputs: Path | None,
    **options: Any,
) -> None:
    """Run the benchmark and print it; JSON goes to its file, or to stdout in place of the tables.

    Raises:
        UsageError: there is no such dimension or input, or the file for JSON is one of the models.
        LayoutoptError: as `bench`; or the file cannot be written.
    """
    given = read_inputs(inputs) if inputs is not None else {}
    reads = [*models, *([inputs] if inputs is not None else [])]
    record = Record(json, *reads, kind="a model or an input" if inputs is not None else "a model", force=force)
    with Steps() as steps:
        try:
            report = bench(models, progress=steps, inputs=given, **options)
        except (DimensionError, InputError) as error:
            option = "--dim" if isinstance(error, DimensionError) else f"--inputs {inputs}:"
            raise UsageError(error.what, where=f"{option} {error.where}", hint=error.hint) from error
    record.write(report)
    if not record.is_printed:
        with after_writing(record.files):
            print_bench(report, with_ops)


def print_bench(report: BenchReport, with_ops: bool) -> None:
    """The models, their times, and what else is known of them."""
    models = report.models
    aside = f"  in {report.blocks} blocks with new sessions, each after {report.warm_up} to warm up"
    rounds = line(f"{report.rounds} in {seconds(report.seconds)}", (aside, "dim"))
    rows = [
        *((each.label, text(_name(each, models), "bold")) for each in models),
        ("machine", _machine(report.machine)),
        ("runtime", text(", ".join(dict.fromkeys(f"{each.runtime} {each.runtime_version}" for each in models)))),
        ("inputs", _inputs(report)),
        ("rounds", rounds),
        *(("" if number else "but", text(each, "yellow")) for number, each in enumerate(report.warnings)),
    ]
    show(facts(*rows))
    if len(models) > 1:
        title = f"{models[0].label}'s time over the other's within each round, median of {report.rounds}"
        section("speed-up", title, _speed_ups(models))
    section("time", f"per run, median of {report.rounds}", _times(models))
    section("session", f"from the file to a session, median of {report.blocks}", _sessions(models))
    section("memory and movement", "peak of a fresh process; part of the kernels' time", _besides(models))
    if with_ops:
        section("ops", "time per run in all nodes, how many, and share; * only moves data", _ops(models))
    if len(models) > 1:
        remark("Whether the models compute the same: layoutopt verify A B")


def _machine(machine: MachineReport) -> Text:
    where = f"pinned to CPU {machine.pinned_to}" if machine.pinned_to is not None else "not pinned"
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return line(machine.cpu, (f"  {threads}, {where}", "dim"))


def _inputs(report: BenchReport) -> Text:
    """Those of the first model; random unless it says that they are given."""
    inputs = report.models[0].inputs
    shapes = (f"{each.name} {each.dtype} {'x'.join(map(str, each.shape))}".strip() for each in inputs)
    said = [f"{shape}{' as given' if each.given else ''}" for shape, each in zip(shapes, inputs, strict=True)]
    aside = f"  random, seed {report.seed}" if any(not each.given for each in inputs) else ""
    return line(", ".join(said) or "none", (aside, "dim"))


def _name(model: ModelReport, models: Sequence[ModelReport]) -> str:
    """The file, and its runtime where there are several."""
    return f"{model.model} in {model.runtime}" if len({each.runtime for each in models}) > 1 else model.model


def _speed_ups(models: Sequence[ModelReport]) -> Table:
    rows = table("=", ">median", f"={models[0].time.confidence:.0%} interval", "=quartiles", "=")
    for each in models[1:]:
        found = each.speed_up
        assert found is not None
        style = _STYLES[found.verdict]
        interval, quartiles = (
            f"{found.low:.3f}…{found.high:.3f}",
            f"{found.lower_quartile:.3f}…{found.upper_quartile:.3f}",
        )
        median = text(f"{found.median:.3f}", f"bold {style}")
        rows.add_row(
            text(f"{models[0].label}/{each.label}", "dim"), median, interval, quartiles, text(found.verdict, style)
        )
    return rows


def _times(models: Sequence[ModelReport]) -> Table:
    rows = table("=", ">median", f"={models[0].time.confidence:.0%} interval", "=quartiles", ">fastest")
    for each in models:
        time = each.time
        quartiles = f"{seconds(time.lower_quartile)}…{seconds(time.upper_quartile)}"
        fastest = seconds(min(map(min, each.samples)))
        rows.add_row(text(each.label, "dim"), seconds(time.median), _interval(time), quartiles, fastest)
    return rows


def _interval(spread: MedianEstimate) -> str:
    return f"{seconds(spread.low)}…{seconds(spread.high)}"


def _sessions(models: Sequence[ModelReport]) -> Table:
    interval = f"={models[0].creation.confidence:.0%} interval"
    rows = table("=", ">median", interval, *((">speed-up", interval, "=") if len(models) > 1 else ()))
    for each in models:
        cells = [text(each.label, "dim"), text(seconds(each.creation.median)), text(_interval(each.creation))]
        if (gain := each.creation_speed_up) is not None:
            style = _STYLES[gain.verdict]
            cells += [
                text(f"{gain.median:.2f}", style),
                text(f"{gain.low:.2f}…{gain.high:.2f}"),
                text(gain.verdict, style),
            ]
        rows.add_row(*cells)
    return rows


def _besides(models: Sequence[ModelReport]) -> Table:
    rows = table("=", ">peak memory", ">of it the model", ">data movement", ">Transpose and Reorder")
    for each in models:
        memory = each.memory
        model = size(max(memory.peak_bytes - memory.bytes_before, 0))
        shares = (f"{share:.1%}" for share in (each.profile.movement_share, each.profile.reorder_share))
        rows.add_row(text(each.label, "dim"), size(memory.peak_bytes), model, *shares)
    return rows


def _ops(models: Sequence[ModelReport]) -> Table:
    """What takes longest in any of the models first."""
    ops = [op for each in models for op in each.profile.ops]
    order = list(dict.fromkeys(op.op for op in sorted(ops, key=lambda op: (-op.seconds, op.op))))
    movers = {op.op for op in ops if op.moves_data}
    rows = table("=op", *(column for each in models for column in (f">{each.label}", ">nodes", ">share")))
    for name in order[:_SHORT]:
        rows.add_row(line(name, (" *" if name in movers else "", "yellow")), *_cells(models, [name]))
    if rest := order[_SHORT:]:
        rows.add_row("others", *_cells(models, rest), style="dim")
    rows.add_row("all", *_cells(models, order), style="bold")
    return rows


def _cells(models: Sequence[ModelReport], names: Sequence[str]) -> list[str]:
    cells = []
    for each in models:
        ops = [op for op in each.profile.ops if op.op in names]
        time, whole = sum(op.seconds for op in ops), each.profile.seconds
        share = f"{time / whole:.1%}" if whole else ""
        cells += [seconds(time), f"{sum(op.nodes for op in ops):.4g}", share] if ops else ["", "", ""]
    return cells
