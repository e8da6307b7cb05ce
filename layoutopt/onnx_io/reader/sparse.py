"""Conversion of sparse tensors to dense ones, as onnxruntime does when it loads a model.

Formats and onnx_ir support dense tensors only. A model that is not rewritten keeps its sparse tensors.
"""

import math

import numpy as np
import onnx
from onnx import numpy_helper

from layoutopt.errors import ModelError
from layoutopt.ir.types import Array
from layoutopt.onnx_io.reader.external import DataFolder
from layoutopt.onnx_io.reader.lossless import display_name, graphs, nodes
from layoutopt.onnx_io.reader.tensors import check_tensor

_HINT = "export the model again"
_MAX_ELEMENTS = 1 << 28  # of a dense tensor, which is stored in the message
_SPARSE_CONSTANT = ("Constant", "sparse_value")


def make_dense(proto: onnx.ModelProto) -> None:
    """Replace sparse initializers and sparse values of Constant nodes by dense tensors, in place.

    Raises:
        ModelError: the numbers of indices and values differ, or an index is outside of the shape.
    """
    for graph in graphs(proto):
        for sparse in graph.sparse_initializer:
            if not sparse.values.name:
                raise ModelError("a sparse initializer has no name", where=f"graph {graph.name!r}", hint=_HINT)
            dense = numpy_helper.from_array(_dense(sparse, sparse.values.name), sparse.values.name)
            dense.doc_string = sparse.values.doc_string
            graph.initializer.append(dense)
        graph.ClearField("sparse_initializer")
    for node in nodes(proto):
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.SPARSE_TENSOR and (node.op_type, attr.name) == _SPARSE_CONSTANT:
                dense = numpy_helper.from_array(_dense(attr.sparse_tensor, display_name(node)))
                attr.Clear()
                attr.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=dense))


def check_sparse(sparse: onnx.SparseTensorProto) -> None:
    """Raise ModelError if the numbers of indices and values differ, or an index is outside of the shape."""
    _dense(sparse, sparse.values.name)


def _dense(sparse: onnx.SparseTensorProto, where: str) -> Array:
    shape = tuple(sparse.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"shape {list(shape)} is negative", where=where, hint=_HINT)
    if math.prod(shape) > _MAX_ELEMENTS:
        raise ModelError(f"shape {list(shape)} is too large to be made dense", where=where, hint="use a smaller model")
    for tensor in (sparse.values, sparse.indices):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError("sparse tensors cannot be external data", where=where, hint=_HINT)
        check_tensor(tensor, where, DataFolder.current())
    if sparse.values.data_type == onnx.TensorProto.STRING or sparse.indices.data_type != onnx.TensorProto.INT64:
        raise ModelError("sparse values have to be numbers, and indices int64", where=where, hint=_HINT)
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    if values.ndim != 1 or indices.shape not in ((values.size,), (values.size, len(shape))):
        what = f"{values.size} sparse values, but indices of shape {list(indices.shape)}"
        raise ModelError(what, where=where, hint=_HINT)
    # An index is the position of an element, or has one number per axis.
    columns = indices.T if indices.ndim == 2 else indices[None]
    limits = shape if indices.ndim == 2 else (math.prod(shape),)
    if any(((column < 0) | (column >= limit)).any() for column, limit in zip(columns, limits, strict=True)):
        raise ModelError(f"a sparse index is outside of shape {list(shape)}", where=where, hint=_HINT)
    dense = np.zeros(shape, values.dtype)
    if indices.ndim == 2:
        dense[tuple(columns)] = values
    else:
        dense.reshape(-1)[columns[0]] = values
    return dense
