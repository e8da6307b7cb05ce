"""Does a model file fit this machine and the onnxruntime that is installed on it?

A file of the dialect `onnxruntime` is made for both: its weights are packed for blocks of 8 or 16 channels, and it has
operators that only onnxruntime knows. All answers come from onnxruntime itself; what the processor says of itself is
told besides.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from layoutopt import onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime.kernels import Kernel, kernels
from layoutopt.dialects.onnxruntime.passes.check_block_size import NAME
from layoutopt.errors import TargetError
from layoutopt.runtime.kernel_queries import (
    BLOCKED_DOMAIN,
    RUNTIME_VERSION,
    Support,
    blocked_channels,
    load_failure,
    op_support,
)
from layoutopt.runtime.operator_usage import Usage, usages

_PACKED = re.compile(re.escape(NAME).replace(r"\{\}", r"(\d+)"))


@dataclass(frozen=True, slots=True)
class Machine:
    """What files are held against.

    Attributes:
        onnxruntime: the version that is installed.
        block: channels of a block of its blocked kernels here; None if it has none.
        target: the built-in target that the processor's flags are those of; nothing if there is none.
    """

    onnxruntime: str
    block: int | None
    target: str


@dataclass(frozen=True, slots=True)
class Fitness:
    """What is known of a file.

    Attributes:
        machine: what it was held against.
        packed: channels of the blocks that it was packed for; None if it does not say.
        usages: its operators, by the element types of their inputs.
        failure: why onnxruntime cannot load it.
    """

    machine: Machine
    packed: int | None
    usages: tuple[Usage, ...]
    failure: str

    @property
    def is_blocked(self) -> bool:
        """Whether it has blocked kernels."""
        return any(each.domain == BLOCKED_DOMAIN for each in self.usages)

    @property
    def problems(self) -> dict[str, str]:
        """Why it does not fit, the worst first, and what to do about it; none if it does."""
        found = {}
        runtime, block = f"onnxruntime {self.machine.onnxruntime}", self.machine.block
        again = "optimize the original on this machine"
        if self.is_blocked and self.packed is None:
            found["it has blocked kernels and does not say how many channels a block has"] = again
        elif self.is_blocked and self.packed != block:
            here = f"those of {runtime} have {block} here" if block else f"{runtime} has no blocked kernels here"
            found[f"it is packed for blocks of {self.packed} channels, and {here}"] = again
        lacking = dict.fromkeys(op_name(each) for each in self.usages if each.support.status == "missing")
        if lacking:
            found[f"{runtime} cannot run {', '.join(lacking)}"] = "install a version that can"
        if self.failure:
            found[f"{runtime} cannot load it: {self.failure}"] = "export or optimize it again"
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """A row of the table of kernels, on one choice of element types.

    Attributes:
        kernel: the row.
        binding: the choice.
        support: what the installed onnxruntime has.
    """

    kernel: Kernel
    binding: Mapping[str, str]
    support: Support

    @property
    def is_there(self) -> bool:
        """Whether it is as the table says."""
        return self.support.status == "kernel"


def op_name(usage: Usage) -> str:
    """`Relu(float32)` or `my.domain::Op(float32, int64)`."""
    name = f"{usage.domain}::{usage.op_type}" if usage.domain else usage.op_type
    return f"{name}({', '.join(each or '-' for each in usage.inputs)})"


def this_machine() -> Machine:
    """What files are held against here."""
    try:
        target = host_target()
    except TargetError:
        target = ""
    return Machine(RUNTIME_VERSION, blocked_channels(), target)


def check_model(path: Path, progress: Callable[[str], None] = lambda step: None) -> Fitness:
    """Hold a file against this machine.

    Args:
        path: the file.
        progress: called with the name of each step.

    Raises:
        ModelError: it cannot be read.
    """
    progress("reading")
    model = onnx_io.read(path)
    onnx_io.lift(model)  # onnxruntime may not survive what is not valid
    packed = _packed(node.name or "" for node in model.graph)
    progress("asking onnxruntime for kernels")
    found = tuple(usages(model))
    progress("loading")
    return Fitness(this_machine(), packed, found, load_failure(path))


def check_kernels(rows: Sequence[Kernel] | None = None) -> list[Found]:
    """Hold rows of the table of kernels, by default all, against the installed onnxruntime."""
    choices = ((row, binding) for row in (kernels() if rows is None else rows) for binding in row.types)
    return [
        Found(row, binding, op_support(row.op, row.domain, row.dtypes(binding), row.attributes))
        for row, binding in choices
    ]


def _packed(names: Iterable[str]) -> int | None:
    """The block of the first guard among some nodes."""
    matches = (_PACKED.search(name) for name in names)
    return next((int(match[1]) for match in matches if match), None)
