"""Compatibility of a model file with this machine and its installed onnxruntime.

A file of the dialect `onnxruntime` depends on both: its weights are packed for blocks of 8 or 16 channels, and it has
operators of onnxruntime. The block size of the machine and its kernels are queried from onnxruntime; the target of the
processor is reported too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from layoutopt import inference, onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime.blocked_passes import block_mismatch, packed_block
from layoutopt.errors import TargetError
from layoutopt.runtime.kernel_queries import (
    BLOCKED_DOMAIN,
    RUNTIME_VERSION,
    blocked_channels,
)
from layoutopt.runtime.operator_usage import Usage, usages
from layoutopt.runtime.portable import portable_block
from layoutopt.runtime.session import load_failure
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.runs import run_failure


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine and its onnxruntime.

    Attributes:
        onnxruntime: the installed version.
        block: channels per block of its blocked kernels on this machine; None if it has none.
        target: the built-in target of the processor; empty if there is none.
    """

    onnxruntime: str
    block: int | None
    target: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The compatibility of a file with a machine.

    Attributes:
        machine: the machine.
        packed: channels per block for which the file was packed; None if the file does not declare it.
        is_portable: whether machines with other blocks run a branch without them.
        usages: its operators with the element types of their inputs.
        failure: the error of loading it in onnxruntime; empty if there is none.
        run_failure: the error of running it there; empty if there is none.
    """

    machine: Machine
    packed: int | None
    is_portable: bool
    usages: tuple[Usage, ...]
    failure: str
    run_failure: str = ""

    @property
    def is_blocked(self) -> bool:
        """Whether the file uses blocked kernels."""
        return any(each.domain == BLOCKED_DOMAIN for each in self.usages)

    @property
    def problems(self) -> dict[str, str]:
        """The reasons of incompatibility, the most severe first, each with a hint; empty for a compatible file."""
        found = {}
        runtime, block = f"onnxruntime {self.machine.onnxruntime}", self.machine.block
        again = "optimize the original on this machine"
        if self.is_portable:
            pass
        elif self.is_blocked and self.packed is None:
            found["it has blocked kernels and does not declare how many channels a block has"] = again
        elif self.is_blocked and self.packed is not None and self.packed != block:
            found[block_mismatch(self.packed, block, runtime)] = again
        lacking = dict.fromkeys(op_name(each) for each in self.usages if each.support.status == "missing")
        if lacking:
            found[f"{runtime} cannot run {', '.join(lacking)}"] = "install a version that can"
        if self.failure:
            found[f"{runtime} cannot load it: {self.failure}"] = "export or optimize it again"
        if self.run_failure:
            found[f"{runtime} refuses it: {self.run_failure}"] = "export the model again"
        return found


def op_name(usage: Usage) -> str:
    """An operator with its element types, such as `Relu(float32)` or `my.domain::Op(float32, int64)`."""
    name = f"{usage.domain}::{usage.op_type}" if usage.domain else usage.op_type
    return f"{name}({', '.join(each or '-' for each in usage.inputs)})"


def this_machine() -> Machine:
    """This machine and its onnxruntime."""
    try:
        target = host_target()
    except TargetError:
        target = ""
    return Machine(RUNTIME_VERSION, blocked_channels(), target)


def check_model(path: Path, progress: Callable[[str], None] = lambda step: None) -> Compatibility:
    """The compatibility of a file with this machine.

    Args:
        path: the file.
        progress: called with the name of each step.

    Raises:
        ModelError: the file cannot be read.
    """
    progress("reading")
    model = onnx_io.read(path)
    graph = inference.lift(model)  # raises an error for an invalid model, which could crash onnxruntime
    names = [node.name or "" for node in model.graph]
    branch = portable_block(names)
    progress("asking onnxruntime for kernels")
    found = tuple(usages(model))
    progress("loading")
    failure = load_failure(path)
    progress("running")
    error = "" if failure else run_failure(path, model, SampleInputs.of(graph))
    return Compatibility(this_machine(), branch or packed_block(names), branch is not None, found, failure, error)
