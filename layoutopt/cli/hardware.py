"""Targets as tables."""

from rich.table import Table

from layoutopt.cli.terminal import facts, heading, line, show, show_json, table, text
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target, target_names
from layoutopt.cost_models.spec import Kernel, Sourced
from layoutopt.errors import TargetError

_UNITS = {"memory.bandwidth": "B/s", "launch.overhead": "s", "rates": "op/s"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def print_targets(as_json: bool) -> None:
    """The built-in targets, and which of them this machine is."""
    specs = [load_target(name).spec for name in target_names()]
    here = _here()
    if as_json:
        keys = ("name", "family", "dialect", "description")
        show_json([{key: getattr(spec, key) for key in keys} | {"is_host": spec.name == here} for spec in specs])
        return
    rows = table("=name", "=kind", "=dialect", "description")
    for spec in specs:
        mark = ("  this machine, also called cpu", "green") if spec.name == here else ""
        rows.add_row(text(spec.name, "bold"), text(spec.family), text(spec.dialect, "dim"), line(spec.description, mark))
    how = "A path that ends in .toml is a target too; it can inherit one of these."
    show(rows, line("\n", (how, "dim")))


def _here() -> str | None:
    try:
        return load_target("cpu").name
    except TargetError:
        return None


def print_target(name: str, as_json: bool) -> None:
    """Every number of a target with its source, and its kernels.

    Raises:
        TargetError: there is no such target, or its description is malformed.
    """
    model: RooflineModel = load_target(name)
    spec = model.spec
    if as_json:
        show_json(spec.model_dump(mode="json"))
        return
    about = facts(("kind", text(spec.family)), ("dialect", text(spec.dialect)))
    show(line((spec.name, "bold"), (f"  {spec.description}", "dim")), about, heading("numbers"), _numbers(spec))
    if spec.kernel:
        show(heading("kernels", "what is not here is emulated with casts"), _kernels(spec.kernel))


def _numbers(spec: TargetSpec) -> Table:
    rows = table("=  number", ">", "source")
    for key, number in spec.numbers():
        if not key.startswith("kernel"):
            rows.add_row(text(f"  {key}"), text(_quantity(key, number), "cyan"), text(number.source, "dim"))
    return rows


def _kernels(kernels: tuple[Kernel, ...]) -> Table:
    rows = table("  ops", "element types", "formats", "=unit", ">of peak", "source")
    for kernel in kernels:
        ops = ", ".join(kernel.ops or kernel.family)
        kind = f" {'/'.join(kernel.variant)}" if kernel.variant else ""
        rows.add_row(
            text(f"  {ops}{kind}"),
            text(" ".join(kernel.dtypes)),
            text(_formats(kernel), "cyan"),
            text(kernel.unit),
            text(f"{kernel.efficiency.value:.0%}"),
            text("; ".join(_remarks(kernel)), "dim"),
        )
    return rows


def _formats(kernel: Kernel) -> str:
    return "strided" if kernel.strided else " ".join(f"{role}:{text}" for role, text in kernel.formats.items())


def _remarks(kernel: Kernel) -> list[str]:
    """The source, and every other number with its own."""
    remarks = [kernel.efficiency.source]
    others = {
        "of bandwidth": kernel.bandwidth_efficiency,
        "alignment": kernel.align,
        "of peak unaligned": kernel.unaligned_efficiency,
        "channels at most": kernel.max_channels,
    }
    return remarks + [f"{number.value:g} {what}: {number.source}" for what, number in others.items() if number is not None]


def _quantity(key: str, number: Sourced) -> str:
    unit = next((unit for start, unit in _UNITS.items() if key.startswith(start)), "")
    if not unit or not number.value:
        return f"{number.value:g}"
    scale, prefix = next((pair for pair in _PREFIXES if number.value >= pair[0]), _PREFIXES[-1])
    return f"{number.value / scale:g} {prefix}{unit}"
