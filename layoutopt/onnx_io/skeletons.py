"""Skeletons: small files of networks, such as those of examples/zoo, whose large weights are emptied.

The doc_string of an emptied weight contains the statistics of its elements: `{"normal": [mean, std]}`,
`{"uniform": [low, high]}` or `{"fill": value}`. The same random numbers take their place every time, since the name of the
weight is the seed.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from layoutopt.onnx_io.messages import nested

_LARGEST = 1 << 24  # bytes of a skeleton
_STATISTICS = re.compile(rb'\{"(normal|uniform|fill)": [-+\[\]\d.e, ]+\}')


def filled_skeleton(path: str | os.PathLike[str]) -> onnx.ModelProto | None:
    """The message of a skeleton with weights; None for any other file."""
    with suppress(OSError, ValueError, DecodeError):
        if os.path.getsize(path) <= _LARGEST and _STATISTICS.search(content := Path(path).read_bytes()):
            model = onnx.ModelProto.FromString(content)
            return model if sum(map(fill, constants(model.graph))) else None
    return None


def constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The initializers of a graph and the tensors of its Constant nodes, also of the graphs inside of it."""
    for each in nested([graph]):
        yield from each.initializer
        for node in each.node:
            yield from (attribute.t for attribute in node.attribute if node.op_type == "Constant")


def fill(tensor: onnx.TensorProto) -> bool:
    """Give an emptied tensor its elements; whether it is one."""
    if not _STATISTICS.fullmatch(tensor.doc_string.encode()):
        return False
    ((kind, argument),) = json.loads(tensor.doc_string).items()
    generator, shape = np.random.default_rng(zlib.crc32(tensor.name.encode())), tuple(tensor.dims)
    drawn = np.full(shape, argument) if kind == "fill" else getattr(generator, kind)(*argument, size=shape)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.CopyFrom(numpy_helper.from_array(drawn.astype(dtype), tensor.name))
    return True
