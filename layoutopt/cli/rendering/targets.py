"""Targets as tables."""

from importlib.metadata import EntryPoint

from rich.console import Group, RenderableType
from rich.table import Table

from layoutopt.cli.rendering.terminal import facts, indented, line, remark, section, show, show_json, table, text
from layoutopt.cost_models import TargetSpec, load_target, target_names
from layoutopt.cost_models.plugins import plugins
from layoutopt.cost_models.spec import KernelSpec, Sourced
from layoutopt.errors import TargetError

_KEYS = ("name", "family", "dialect", "description")
_UNITS = {"bandwidth": "B/s", "capacity": "B", "overhead": "s"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def print_targets(as_json: bool) -> None:
    """The built-in targets, and which of them this machine is."""
    specs = [load_target(name).spec for name in target_names()]
    here = _here()
    if as_json:
        records = [{key: getattr(spec, key) for key in _KEYS} for spec in specs]
        installed = [{"name": name, "package": _package(entry)} for name, entry in plugins().items()]
        show_json([*(record | {"is_host": record["name"] == here} for record in records), *installed])
        return
    rows = table("=name", "=kind", "=dialect", "description")
    for spec in specs:
        about = line(spec.description, ("  this machine: cpu", "green")) if spec.name == here else spec.description
        rows.add_row(text(spec.name, "bold"), text(spec.family), text(spec.dialect, "dim"), about)
    for name, entry in plugins().items():
        rows.add_row(text(name, "bold"), "", "", line("cost model in Python, from ", _package(entry)))
    show(rows)
    remark(
        "A path that ends in .toml is a target too; it can inherit one of these. Several with commas between get one plan."
    )


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _here() -> str | None:
    try:
        return str(load_target("cpu").name)
    except TargetError:
        return None


def print_target(name: str, as_json: bool) -> None:
    """Every number of a target with its source, and its kernels.

    Raises:
        TargetError: there is no such target, or its description is malformed.
    """
    spec = load_target(name).spec
    if as_json:
        show_json(spec.model_dump(mode="json"))
        return
    about = facts(("kind", text(spec.family)), ("dialect", text(spec.dialect)))
    show(line((spec.name, "bold"), (f"  {spec.description}", "dim")), about)
    section("numbers", "with their sources", _numbers(spec))
    if spec.kernel:
        section("kernels", "fraction of a unit's peak; what is not here is emulated with casts", _kernels(spec.kernel))


def _numbers(spec: TargetSpec) -> Table:
    rows = table("=", ">", "")
    for key, number in reversed(list(spec.numbers())):  # those of memory first
        if not key.startswith("kernel"):
            rows.add_row(text(key), text(_quantity(key, number), "cyan"), text(number.source, "dim"))
    return rows


def _kernels(kernels: tuple[KernelSpec, ...]) -> Group:
    """The kernels for the same ops and element types together, in the order of the file."""
    groups: dict[tuple[str, ...], list[KernelSpec]] = {}
    for kernel in kernels:
        groups.setdefault((_ops(kernel), *kernel.dtypes), []).append(kernel)
    width = max(len(_formats(kernel)) for kernel in kernels)
    parts: list[RenderableType] = []
    for (ops, *dtypes), members in groups.items():
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(min_width=width, no_wrap=True)
        rows.add_column(min_width=len("100% vector"), no_wrap=True)
        rows.add_column()
        for kernel in members:
            peak = f"{kernel.efficiency.value:>4.0%} {kernel.unit}"
            rows.add_row(text(_formats(kernel), "cyan"), peak, text("; ".join(_remarks(kernel)), "dim"))
        parts += [line(ops, (f"  {' '.join(dtypes)}", "dim")), indented(rows)]
    return Group(*parts)


def _ops(kernel: KernelSpec) -> str:
    names = ", ".join(kernel.ops or kernel.family)
    return f"{names} {'/'.join(kernel.variant)}" if kernel.variant else names


def _formats(kernel: KernelSpec) -> str:
    names = [f"{role}:{name}" for role, name in kernel.formats.items()]
    if kernel.strided:
        names.append("strided" if kernel.strided is True else f"strided by {kernel.strided}")
    if kernel.results is not None:
        names.append(f"into {'/'.join(kernel.results)}")
    return " ".join(names) or "any"


def _remarks(kernel: KernelSpec) -> list[str]:
    """The source of the efficiency, and every other number with its own."""
    others = {
        "of the bandwidth": kernel.bandwidth_efficiency,
        "elements aligned": kernel.align,
        "of the peak if not": kernel.unaligned_efficiency,
        "channels at most": kernel.max_channels,
        "divides the channels": kernel.channel_multiple,
        "samples at least": kernel.min_batch,
        "s at least": kernel.overhead,
    }
    given = ((number, what) for what, number in others.items() if number is not None)
    return [kernel.efficiency.source, *(f"{number.value:g} {what}: {number.source}" for number, what in given)]


def _quantity(key: str, number: Sourced) -> str:
    unit = "op/s" if key.startswith("rates") else _UNITS.get(key.rpartition(".")[2], "")
    if not unit or not number.value:
        return f"{number.value:g}"
    scale, prefix = next((pair for pair in _PREFIXES if number.value >= pair[0]), _PREFIXES[-1])
    return f"{number.value / scale:g} {prefix}{unit}"
