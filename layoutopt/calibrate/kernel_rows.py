"""Kernel rows that calibration adds to a target, for ops that take longer than their memory traffic.

An op without a row is priced by the memory bandwidth alone, which is a third of the measured time for Gelu.
"""

from layoutopt.cost_models import TargetSpec
from layoutopt.cost_models.spec import Fraction, KernelSpec

_PLACEHOLDER = Fraction(value=1.0, source="estimate: bound by memory")
_ROWS: tuple[tuple[tuple[str, ...], tuple[str, ...] | None], ...] = (
    *((("elementwise",), ops) for ops in (("Sigmoid", "Tanh"), ("Erf",), ("Gelu",), ("QuickGelu",), ("FastGelu",))),
    *((("elementwise",), ops) for ops in (("HardSwish",), ("Sqrt",), ("Softplus",))),
    (("softmax",), ("Softmax",)),
    (("reduction",), ("ReduceMean",)),
    (("normalization",), ("LayerNormalization",)),
    (("normalization",), ("InstanceNormalization",)),
    (("rearrangement",), ("Concat",)),
)


def with_rows(spec: TargetSpec) -> TargetSpec:
    """The target with all rows that calibration fits."""
    present = {(kernel.family, kernel.ops) for kernel in spec.kernel if kernel.direct}
    added = tuple(
        KernelSpec(family=family, ops=ops, dtypes=("float32",), direct=True, unit="vector", efficiency=_PLACEHOLDER)
        for family, ops in _ROWS
        if (family, ops) not in present
    )
    return spec.model_copy(update={"kernel": spec.kernel + added})
