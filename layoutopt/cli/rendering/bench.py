"""The output of `bench`."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from layoutopt.bench.bench_report import BenchReport, MachineReport, ModelReport
from layoutopt.cli.rendering.terminal import (
    Cell,
    footnote,
    key_values,
    seconds,
    section,
    show,
    size,
    styled_line,
    table,
)
from layoutopt.timing.statistics import CONFIDENCE, Estimate

_INTERVAL = f"={CONFIDENCE:.0%} interval"
_STYLES = {"faster": "green", "slower": "red", "no difference shown": "yellow"}


def print_bench(report: BenchReport) -> None:
    """Print models, conditions, speed-ups, times, session creation, memory and reorders."""
    models = report.models
    rounds = styled_line(str(report.rounds), (f"  in {report.blocks} blocks, each with new sessions", "dim"))
    rows: list[tuple[str, Cell]] = [
        *((each.label, (_name(each, models), "bold")) for each in models),
        ("machine", _machine(report.machine)),
        ("runtime", ", ".join(dict.fromkeys(f"{each.runtime} {each.runtime_version}" for each in models))),
        ("inputs", _inputs(report)),
        ("rounds", rounds),
        *(("" if number else "caveats", (each, "yellow")) for number, each in enumerate(report.warnings)),
    ]
    show(key_values(*rows))
    if len(models) > 1:
        title = f"time of {models[0].label} / time of the other model, per round; mean of {report.blocks} blocks"
        section("speed-up", title, _speed_ups(models))
    section("time", f"per run, mean of {report.blocks} blocks", _times(models))
    section("session creation", f"mean of {report.blocks}", _sessions(models))
    section("memory and reorders", "peak of a fresh process; share of the time of a run", _memory_and_reorders(models))
    if len(models) > 1:
        footnote("Compare the outputs of the models with: layoutopt verify A B")


def _machine(machine: MachineReport) -> Text:
    where = f"pinned to CPU {machine.pinned_to}" if machine.pinned_to is not None else "not pinned"
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return styled_line(machine.cpu, (f"  {threads}, {where}", "dim"))


def _inputs(report: BenchReport) -> Text:
    """The inputs of the first model; those not marked as given are random."""
    inputs = report.models[0].inputs
    shapes = (f"{each.name} {each.dtype} {'x'.join(map(str, each.shape))}".strip() for each in inputs)
    described = [f"{shape}{' (given)' if each.given else ''}" for shape, each in zip(shapes, inputs, strict=True)]
    aside = f"  random, seed {report.seed}" if any(not each.given for each in inputs) else ""
    return styled_line(", ".join(described) or "none", (aside, "dim"))


def _name(model: ModelReport, models: Sequence[ModelReport]) -> str:
    """The file name, with the runtime if there are several runtimes."""
    return f"{model.model} in {model.runtime}" if len({each.runtime for each in models}) > 1 else model.model


def _speed_ups(models: Sequence[ModelReport]) -> Table:
    rows: list[list[Cell]] = []
    for each in models[1:]:
        found = each.speed_up
        assert found is not None
        style = _STYLES[found.verdict]
        interval, quartiles = (
            f"{found.low:.3f}…{found.high:.3f}",
            f"{found.lower_quartile:.3f}…{found.upper_quartile:.3f}",
        )
        mean = (f"{found.value:.3f}", f"bold {style}")
        rows.append([(f"{models[0].label}/{each.label}", "dim"), mean, interval, quartiles, (found.verdict, style)])
    return table(["=", ">mean", _INTERVAL, "=quartiles", "="], rows)


def _times(models: Sequence[ModelReport]) -> Table:
    rows: list[list[Cell]] = []
    for each in models:
        time = each.time
        quartiles = f"{seconds(time.lower_quartile)}…{seconds(time.upper_quartile)}"
        fastest = seconds(min(map(min, each.samples)))
        rows.append([(each.label, "dim"), seconds(time.value), _interval(time), quartiles, fastest])
    return table(["=", ">mean", _INTERVAL, "=quartiles", ">fastest"], rows)


def _interval(spread: Estimate) -> str:
    return f"{seconds(spread.low)}…{seconds(spread.high)}"


def _sessions(models: Sequence[ModelReport]) -> Table:
    rows: list[list[Cell]] = []
    for each in models:
        cells: list[Cell] = [(each.label, "dim"), seconds(each.creation.value), _interval(each.creation)]
        if (gain := each.creation_speed_up) is not None:
            style = _STYLES[gain.verdict]
            cells += [(f"{gain.value:.2f}", style), f"{gain.low:.2f}…{gain.high:.2f}", (gain.verdict, style)]
        rows.append(cells)
    return table(["=", ">mean", _INTERVAL, *([">speed-up", _INTERVAL, "="] if len(models) > 1 else [])], rows)


def _memory_and_reorders(models: Sequence[ModelReport]) -> Table:
    rows: list[list[Cell]] = []
    for each in models:
        memory = each.memory
        model = size(max(memory.peak_bytes - memory.bytes_before, 0))
        rows.append([(each.label, "dim"), size(memory.peak_bytes), model, f"{each.reorder_share:.1%}"])
    return table(["=", ">peak memory", ">of which model", ">Transpose and Reorder"], rows)
