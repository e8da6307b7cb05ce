"""A session of one kernel whose inputs and outputs are bound to memory, so that a run costs little more than the kernel.

    session.run_with_ort_values    60 us more than the kernel, which varies by more than a small kernel takes
    session.run_with_iobinding      5 us more                       (onnxruntime 1.32, AMD EPYC)

Outputs of all sessions are written to one scratch memory: a kernel then writes to memory that another one has just used, as in
a network, where onnxruntime reuses buffers.
"""

from collections.abc import Mapping, Sequence
from math import prod
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from layoutopt.ir.types import Array
from layoutopt.runtime.session import inference_session
from layoutopt.runtime.type_names import short_name

_ALIGNMENT = 64  # bytes
_SHARED_ARENA = {"session.use_env_allocators": "1"}
"""Sessions allocate buffers in one arena, where a kernel gets memory that another one has just freed, as in a network."""


def _memory(nbytes: int) -> Array:
    """Aligned bytes as onnxruntime allocates them: without the huge pages of large numpy arrays."""
    found = np.frombuffer(bytearray(nbytes + _ALIGNMENT), np.uint8)
    start = -found.ctypes.data % _ALIGNMENT
    return found[start : start + nbytes]


def _copied(array: Array) -> Array:
    """A copy of an array in memory of `_memory`; an array of strings is returned itself."""
    if array.dtype.hasobject or array.dtype.kind in "SU":
        return array
    copy: Array = _memory(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _ArrayType(NamedTuple):
    """The shape and the element type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class ScratchMemory:
    """Memory that the outputs of several sessions share. It grows to the largest of them."""

    def __init__(self) -> None:
        self._memory = _memory(0)

    def arrays(self, types: Sequence[_ArrayType]) -> list[Array]:
        """Arrays of given types, one behind the other, from the start of the memory on."""
        starts, end = [], 0
        for each in types:
            starts.append(end)
            end += -(-each.nbytes // _ALIGNMENT) * _ALIGNMENT
        if end > self._memory.nbytes:
            self._memory = _memory(end)  # earlier arrays keep the memory that they have
        return [
            self._memory[start : start + each.nbytes].view(each.dtype).reshape(each.shape)
            for start, each in zip(starts, types, strict=True)
        ]


class KernelSession:
    """A session of one kernel with its operands.

    Args:
        model: the kernel's model.
        feed: its inputs.
        threads: threads of onnxruntime.
        scratch: for the outputs.
        is_optimised: whether onnxruntime optimises the model.
        is_view: whether the result is the first input in another shape: in a network, onnxruntime then copies nothing.

    Attributes:
        num_inputs: the number of inputs.
    """

    def __init__(
        self,
        model: bytes,
        feed: Mapping[str, Array],
        threads: int,
        scratch: ScratchMemory,
        *,
        is_optimised: bool = False,
        is_view: bool = False,
    ) -> None:
        """Create the session and run it."""
        self._clock = thread_time if threads == 1 else perf_counter
        self._session = inference_session(model, is_optimised=is_optimised, threads=threads, config=_SHARED_ARENA)
        arrays = {name: _copied(array) for name, array in feed.items()}
        self.num_inputs = len(arrays)
        self._written = [each for each in arrays.values() if each.dtype.kind in "fiu"]
        self._binding = self._session.io_binding()
        operands = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
        for name, operand in operands.items():
            self._binding.bind_ortvalue_input(name, operand)
        results = _result_types(self._session, operands)
        source = next(iter(arrays.values()), None)
        if is_view and source is not None and results[0].nbytes == source.nbytes:
            bound = [source.reshape(results[0].shape)]
        else:
            bound = scratch.arrays(results)
        self._operands = [*arrays.values(), *bound]  # onnxruntime holds their memory, not the arrays
        for output, array in zip(self._session.get_outputs(), bound, strict=True):
            self._binding.bind_ortvalue_output(output.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self.run()

    def run(self) -> float:
        """The seconds of one run; its inputs have just been written."""
        for array in self._written:
            np.add(array, 0, out=array, casting="unsafe")
        begin = self._clock()
        self._session.run_with_iobinding(self._binding)
        return self._clock() - begin


def _result_types(
    session: onnxruntime.InferenceSession, operands: Mapping[str, onnxruntime.OrtValue]
) -> list[_ArrayType]:
    """The types of the outputs: those that onnxruntime infers if all extents are known, or else those of a run.

    Raises:
        TypeError: an output is no array of numpy's types.
    """
    outputs = session.get_outputs()
    if all(isinstance(extent, int) for each in outputs for extent in each.shape):
        return [_ArrayType(tuple(each.shape), np.dtype(short_name(each.type))) for each in outputs]
    results = session.run_with_ort_values([each.name for each in outputs], operands)
    return [_ArrayType(tuple(each.shape()), np.dtype(short_name(each.data_type()))) for each in results]


__all__ = ["KernelSession", "ScratchMemory"]
