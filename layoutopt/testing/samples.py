"""Models of one op with inputs: the samples on which a layout rule is tested."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx
from onnx import helper

from layoutopt.ir.types import Array
from layoutopt.runtime.session import Session

Feed: TypeAlias = Mapping[str, Array]


class Runner(Protocol):
    """A loaded model."""

    def run(self, names: Sequence[str] | None, feeds: Feed) -> list[Any]:
        """The outputs with the given names, or all outputs."""


Loader: TypeAlias = Callable[[bytes], Runner]
"""Loads a serialised model."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A model of one op, and inputs for it.

    Attributes:
        name: of the sample, for messages.
        model: the model.
        feeds: sets of inputs, by the name of the input.
    """

    name: str
    model: onnx.ModelProto
    feeds: tuple[Feed, ...]

    def __str__(self) -> str:
        return self.name


def load_in_onnxruntime(model: bytes) -> Runner:
    """Load a model in onnxruntime, without its optimisations and with one thread."""
    return Session(model, is_optimised=False, threads=1)


def random_array(shape: tuple[int, ...], seed: str) -> Array:
    """Normal numbers in float32 that depend on the seed only."""
    return np.random.default_rng(zlib.crc32(seed.encode())).normal(size=shape).astype(np.float32)


def make_sample(
    text: str,
    *,
    opset: int = 17,
    out: int = onnx.TensorProto.FLOAT,
    types: tuple[int, ...] = (),
    function: str = "",
    load: Loader = load_in_onnxruntime,
    **inputs: object,
) -> Sample:
    """A model of one op in the text form of ONNX.

    Args:
        text: the node: `y = Softmax <axis = 1> (x)`.
        opset: the version of ai.onnx.
        out: the element type of every output.
        types: the element type of each output, if they differ.
        function: a function, in the text form of ONNX, that defines an op for which no runtime has a kernel.
        load: loads the model, which is run once for the shapes of the outputs.
        inputs: an array, or the shape of a random array, by name.
    """
    node = onnx.parser.parse_node(text)
    feed: dict[str, Array] = {}
    for name, value in inputs.items():  # also those that only a body of the op reads
        feed[name] = random_array(value, f"{text} {name}") if isinstance(value, tuple) else np.asarray(value)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    names = [name for name in node.output if name]
    kinds = types or (out,) * len(names)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    graph = helper.make_graph([node], "sample", given, outputs)
    versions = {"": opset, node.domain: opset if not node.domain else 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    functions = [onnx.parser.parse_function(function)] if function else []
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    results = load(model.SerializeToString()).run(None, feed)
    for info, array in zip(model.graph.output, results, strict=True):
        info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, array.shape))
    shapes = ",".join("x".join(map(str, array.shape)) for array in feed.values())
    return Sample(f"{text} [{shapes}] opset {opset}", model, (feed,))


__all__ = ["Feed", "Loader", "Runner", "Sample", "load_in_onnxruntime", "make_sample", "random_array"]
