"""The output of `targets`."""

from rich.console import Group, RenderableType
from rich.table import Table

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import (
    footnote,
    indented,
    key_values,
    section,
    show,
    styled_line,
    table,
    text,
)
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target, target_names
from layoutopt.cost_models.registry import EXTENSIONS, find_target
from layoutopt.cost_models.spec import KernelSpec, Sourced
from layoutopt.errors import TargetError
from layoutopt.registry import package_of

_KEYS = ("name", "family", "dialect", "description")
_UNITS = {"bandwidth": "B/s", "capacity": "B", "overhead": "s"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def print_targets(json: JsonRecord) -> None:
    """Print the built-in and installed targets, and mark the one that describes this machine."""
    specs = [load_target(name).spec for name in target_names()]
    host = _host()
    records = [{key: getattr(spec, key) for key in _KEYS} for spec in specs]
    installed = [{"name": name, "package": package_of(entry)} for name, entry in EXTENSIONS.found.items()]
    json.write({"targets": [*(record | {"is_host": record["name"] == host} for record in records), *installed]})
    if json.is_printed:
        return
    rows = table("=name", "=kind", "=dialect", "description")
    for spec in specs:
        about = (
            styled_line(spec.description, ("  this machine: cpu", "green")) if spec.name == host else spec.description
        )
        rows.add_row(text(spec.name, "bold"), text(spec.family), text(spec.dialect, "dim"), about)
    for name, entry in EXTENSIONS.found.items():
        rows.add_row(text(name, "bold"), "", "", styled_line("from the package ", package_of(entry)))
    show(rows)
    footnote(
        "The path of a .toml file is a target too; it can inherit from one of these. NAME,NAME gets one plan for both."
    )


def _host() -> str | None:
    try:
        return str(load_target("cpu").name)
    except TargetError:
        return None


def print_target(name: str, json: JsonRecord) -> None:
    """Print every parameter of a target with its source, and its kernels.

    Raises:
        TargetError: there is no such target, its description is malformed, or it has none.
    """
    spec = _spec(name)
    json.write(spec.model_dump(mode="json"))
    if json.is_printed:
        return
    about = key_values(("kind", text(spec.family)), ("dialect", text(spec.dialect)))
    show(styled_line((spec.name, "bold"), (f"  {spec.description}", "dim")), about)
    section("parameters", "with their sources", _numbers(spec))
    if spec.kernel:
        section(
            "kernels",
            "fraction of a unit's peak; other formats are emulated with layout conversions",
            _kernels(spec.kernel),
        )


def _spec(name: str) -> TargetSpec:
    model = find_target(name)
    if not isinstance(model, RooflineModel):
        hint = "name a target that a TOML file describes"
        raise TargetError("has no parameters to print", where=name, hint=hint)
    return model.spec


def _numbers(spec: TargetSpec) -> Table:
    rows = table("=parameter", ">value", "source")
    for key, number in reversed(list(spec.numbers())):  # memory first
        if not key.startswith("kernel"):
            rows.add_row(text(key), text(_quantity(key, number), "cyan"), text(number.source, "dim"))
    return rows


def _kernels(kernels: tuple[KernelSpec, ...]) -> Group:
    """The kernels grouped by ops and element types, in the order of the file."""
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
        parts += [styled_line(ops, (f"  {' '.join(dtypes)}", "dim")), indented(rows)]
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
    """The source of the efficiency, then the other parameters of the kernel with their sources."""
    others = {
        "of peak bandwidth": kernel.bandwidth_efficiency,
        "elements alignment": kernel.align,
        "of peak if unaligned": kernel.unaligned_efficiency,
        "channels maximum": kernel.max_channels,
        "divides the channel count": kernel.channel_multiple,
        "batch minimum": kernel.min_batch,
        "s minimum": kernel.overhead,
    }
    given = ((number, what) for what, number in others.items() if number is not None)
    return [kernel.efficiency.source, *(f"{number.value:g} {what}: {number.source}" for number, what in given)]


def _quantity(key: str, number: Sourced) -> str:
    unit = "op/s" if key.startswith("rates") else _UNITS.get(key.rpartition(".")[2], "")
    if not unit or not number.value:
        return f"{number.value:g}"
    scale, prefix = next((pair for pair in _PREFIXES if number.value >= pair[0]), _PREFIXES[-1])
    return f"{number.value / scale:g} {prefix}{unit}"
