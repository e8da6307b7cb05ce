"""The page `reference/targets.md`: every parameter of the built-in targets with its source."""

from collections.abc import Iterator

from tables import code, table

from layoutopt.cost_models import load_target, target_names
from layoutopt.cost_models.registry import TEMPLATE
from layoutopt.cost_models.spec import KernelSpec, TargetSpec

_INTRODUCTION = """\
# Parameters of the built-in targets

Generated from `cost_models/targets/*.toml`; [Targets](../targets.md) describes how to write one, and the template is [at the
end](#keys). Units are seconds, bytes, bytes per second and operations per second; a multiply-add counts as two operations. An
efficiency is a fraction of the peak of a unit or of the bandwidth. `layoutopt targets NAME` prints the same in a terminal.
"""


def targets_page() -> str:
    """The page as Markdown."""
    specs = [load_target(name).spec for name in target_names()]
    overview = table(
        ("target", "kind", "dialect", "description"),
        [(f"[{spec.name}](#{spec.name})", spec.family, code(spec.dialect), spec.description) for spec in specs],
    )
    keys = f"## Keys\n\n```toml\n{TEMPLATE.read_text()}```\n"
    return "\n".join([_INTRODUCTION, overview, "", *(part for spec in specs for part in _target(spec)), keys])


def _target(spec: TargetSpec) -> Iterator[str]:
    yield f"## {spec.name}\n"
    yield f"{spec.description}\n"
    numbers = [(key, number) for key, number in reversed(list(spec.numbers())) if not key.startswith("kernel")]
    rows = [(code(key), f"{number.value:g}", number.source) for key, number in numbers]
    yield table(("parameter", "value", "source"), rows)
    header = ("ops", "element types", "formats", "unit", "efficiency", "source", "limits")
    yield table(header, [_kernel(kernel) for kernel in spec.kernel])


def _kernel(kernel: KernelSpec) -> tuple[str, ...]:
    ops = ", ".join((*(kernel.ops or kernel.family), *(kernel.variant or ())))
    formats = " ".join(f"{role}:{name}" for role, name in kernel.formats.items())
    if kernel.strided:
        formats += " strided" if kernel.strided is True else f" strided by {kernel.strided}"
    value, source = f"{kernel.efficiency.value:g}", kernel.efficiency.source
    return ops, " ".join(kernel.dtypes), code(formats.strip()), kernel.unit, value, source, _limits(kernel)


def _limits(kernel: KernelSpec) -> str:
    """The other numbers of the kernel, each with its source."""
    values = {key: getattr(kernel, key) for key in type(kernel).model_fields if key != "efficiency"}
    return "; ".join(
        f"{code(key)} {number.value:g} ({number.source})" for key, number in values.items() if hasattr(number, "source")
    )
