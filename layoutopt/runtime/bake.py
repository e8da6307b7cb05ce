"""What stock onnxruntime makes of a model when it loads it, written down, so that nobody waits for it again.

A session is made of the model and saved. Loading what was saved takes a half to a third of the time, as there is
nothing left to rewrite, and computes the same: it is what would have run anyway.
"""

from pathlib import Path

import onnx_ir as ir
import onnxruntime

from layoutopt.errors import ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.converter.equal_initializers import share_initializers
from layoutopt.onnx_io.reader.read import read
from layoutopt.onnx_io.sidecar import inherit
from layoutopt.onnx_io.writer.deterministic import compute_outputs, name_anew, order_anew
from layoutopt.onnx_io.writer.serialize import to_bytes, weight_bytes
from layoutopt.runtime.custom_ops import session_options
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory

LARGEST = 300_000_000
"""Bytes of weights of the largest model that is baked: onnxruntime and its file take four times that in memory."""

_PACKER = "NchwcTransformer"
_FOLDER = "ConstantFolding"
_NEGLIGIBLE = 1 << 16  # bytes
_ROUNDED_AGAIN = ("DequantizeLinear",)
"""Around these onnxruntime 1.31 rewrites what it has rewritten, and does not always load what comes of it."""


def bake(model: ir.Model, *, packs: bool) -> ir.Model:
    """The model after onnxruntime's own optimisations, at its default level.

    Inputs, outputs and what the model says of itself stay as they are. A model that is too large for one message comes
    back unchanged. So does one that would become larger even if onnxruntime folds no constants: it would widen weights that are
    stored in narrow types.

    Args:
        model: the model, which is not changed.
        packs: whether onnxruntime may pack convolutions for the blocks of this machine, which others would read wrongly.

    Raises:
        ModelError: onnxruntime cannot load the model, or not what it has made of it.
    """
    size = weight_bytes(model)
    if size > LARGEST:
        return model
    disabled = [] if packs else [_PACKER]
    for more in ([], [_FOLDER]):
        baked = _optimised(model, [*disabled, *more])
        if weight_bytes(baked) <= size + _NEGLIGIBLE:
            return baked
    return model


def _optimised(model: ir.Model, disabled: list[str]) -> ir.Model:
    """What onnxruntime makes of a model without some of its optimisers."""
    with scratch_folder() as folder:
        path = folder / "baked.onnx"
        _load(model, disabled, path)
        baked = read(path)
    compute_outputs(baked)
    share_initializers(baked)
    order_anew(baked)
    name_anew(model, baked)
    _take_over(model, baked)
    inherit(baked, model)
    if any(node.op_type in _ROUNDED_AGAIN for node in baked.graph.all_nodes()):
        _load(baked, disabled)
    return baked


def _load(model: ir.Model, disabled: list[str], saved: Path | None = None) -> None:
    """Have onnxruntime load a model at its default level, and save what it makes of it."""
    options = session_options()
    options.intra_op_num_threads = 1
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    try:
        onnxruntime.InferenceSession(
            to_bytes(model),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=disabled or None,
        )
    except RUNTIME_ERRORS as error:
        raise_if_out_of_memory(error)
        raise ModelError(f"onnxruntime cannot load it: {error}", where=model.graph.name or "model") from error


def forget_inner_types(model: ir.Model) -> None:
    """Drop the recorded types of inner values and constants, which onnxruntime infers faster than it reads them."""
    kept = {*model.graph.inputs, *model.graph.outputs}
    computed = (value for node in model.graph for value in node.outputs)
    for value in (*computed, *model.graph.initializers.values()):
        if value not in kept:
            value.shape, value.type = None, None


def _take_over(model: ir.Model, baked: ir.Model) -> None:
    """What onnxruntime does not keep, or says of every domain that it knows."""
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(baked, field, getattr(model, field))
    baked.metadata_props.clear()
    baked.metadata_props.update(model.metadata_props)
    baked.graph.name, baked.graph.doc_string = model.graph.name, model.graph.doc_string
    known = {value.name: value for value in (*model.graph.inputs, *model.graph.outputs)}
    if baked.ir_version < 4:
        _list_initializers(baked.graph, model.graph)
        known = {name: value for name, value in known.items() if name not in baked.graph.initializers}
    for new in (*baked.graph.inputs, *baked.graph.outputs):
        if (old := known.get(new.name)) is not None:
            new.shape, new.type, new.doc_string = old.shape, old.type, old.doc_string
    used = {
        "",
        *(node.domain for node in baked.graph.all_nodes()),
        *(each.domain for each in baked.functions.values()),
    }
    for domain in [domain for domain in baked.opset_imports if domain not in used]:
        del baked.opset_imports[domain]


def _list_initializers(graph: ir.Graph, before: ir.Graph) -> None:
    """Before IR version 4 every initializer is an input too; onnxruntime forgets that where it makes or drops some."""
    constants = {*before.initializers, *graph.initializers}
    inputs = [value for value in graph.inputs if value.name not in constants]
    for value in graph.initializers.values():
        tensor = value.const_value
        assert tensor is not None
        value.shape, value.type = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        inputs.append(value)
    graph.inputs[:] = inputs
