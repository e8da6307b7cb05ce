"""Compatibility of a model file with this machine and its installed onnxruntime.

A file of the dialect `onnxruntime` depends on both: its weights are packed for blocks of 8 or 16 channels, and it has
operators of onnxruntime. The block size of the machine and its kernels are queried from onnxruntime; the target of the
processor is reported too.
"""

from collections.abc import Callable
from pathlib import Path

from layoutopt import inference, onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects.onnxruntime.blocked_passes import block_mismatch, packed_block
from layoutopt.errors import TargetError
from layoutopt.record import Record
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


class Compatibility(Record):
    """The compatibility of a file with this machine.

    Attributes:
        onnxruntime: the installed version.
        block: channels per block of its blocked kernels on this machine; None if it has none.
        target: the built-in target of the processor; None if there is none.
        packed_for: channels per block for which the file was packed; None if the file does not declare it.
        is_portable: whether machines with other blocks run a branch without them.
        load_error: the error of loading it in onnxruntime; None if there is none.
        run_error: the error of running it there; None if there is none.
        usages: its operators with the element types of their inputs.
    """

    onnxruntime: str
    block: int | None
    target: str | None
    packed_for: int | None
    is_portable: bool
    load_error: str | None
    run_error: str | None
    usages: tuple[Usage, ...]

    @property
    def is_blocked(self) -> bool:
        """Whether the file uses blocked kernels."""
        return any(each.domain == BLOCKED_DOMAIN for each in self.usages)

    @property
    def problems(self) -> dict[str, str]:
        """The reasons of incompatibility, the most severe first, each with a hint; empty for a compatible file."""
        found = {}
        runtime, again = f"onnxruntime {self.onnxruntime}", "optimize the original on this machine"
        if self.is_blocked and not self.is_portable and self.packed_for is None:
            found["it has blocked kernels and does not declare how many channels a block has"] = again
        elif self.is_blocked and not self.is_portable and self.packed_for != self.block:
            assert self.packed_for is not None
            found[block_mismatch(self.packed_for, self.block, runtime)] = again
        lacking = dict.fromkeys(op_name(each) for each in self.usages if each.support.status == "missing")
        if lacking:
            found[f"{runtime} cannot run {', '.join(lacking)}"] = "install a version that can"
        if self.load_error:
            found[f"{runtime} cannot load it: {self.load_error}"] = "export or optimize it again"
        if self.run_error:
            found[f"{runtime} refuses it: {self.run_error}"] = "export the model again"
        return found


def op_name(usage: Usage) -> str:
    """An operator with its element types, such as `Relu(float32)` or `my.domain::Op(float32, int64)`."""
    name = f"{usage.domain}::{usage.op_type}" if usage.domain else usage.op_type
    return f"{name}({', '.join(each or '-' for each in usage.inputs)})"


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
    try:
        target = host_target()
    except TargetError:
        target = None
    progress("asking onnxruntime for kernels")
    found = tuple(usages(graph, model))
    progress("loading")
    failure = load_failure(path)
    progress("running")
    error = "" if failure else run_failure(path, model, SampleInputs.of(graph))
    return Compatibility(
        onnxruntime=RUNTIME_VERSION,
        block=blocked_channels(),
        target=target,
        packed_for=branch or packed_block(names),
        is_portable=branch is not None,
        load_error=failure or None,
        run_error=error or None,
        usages=found,
    )
