"""Baking: replacement of a model by its form after onnxruntime's own optimisations, so that loading need not rewrite it.

onnxruntime loads the model and saves its optimised form. The saved model loads in a half to a third of the time and runs
the same kernels. For a single rewrite that is left, onnxruntime infers all types again, which takes as long as loading the
nodes. So small constants are shared, and a model is baked again until nothing changes.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.files import scratch_folder
from layoutopt.onnx_io.baked import normalized
from layoutopt.onnx_io.reader import read
from layoutopt.onnx_io.serialize import to_bytes, weight_bytes
from layoutopt.onnx_io.writer import write
from layoutopt.runtime.errors import RUNTIME_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.session import EXTERNAL_WEIGHTS, MAX_BYTES_IN_MEMORY, inference_session

MAX_BAKED_BYTES = 600_000_000
"""Bytes of weights above which a model is not baked: baking takes five times its size in memory."""
MAX_REBAKED_BYTES = 64_000_000
"""Bytes of weights above which a model is baked once: baking resnet50, 94 MB, takes 0.65 s."""

_LAYOUT_OPTIMISER = "NchwcTransformer"
_CONSTANT_FOLDING = "ConstantFolding"
_NEGLIGIBLE = 1 << 16  # bytes
_PADDED = 0.02  # growth by the channels that onnxruntime pads; a type that is twice as wide adds more
_ROUNDS = 3
_REWRITTEN_TWICE = ("DequantizeLinear",)
"""onnxruntime 1.31 rewrites the neighbours of these ops again in its own result, and may then fail to load it."""


def bake(model: ir.Model, source: bytes | str | None = None, *, packs: bool, folds: bool = True) -> ir.Model:
    """The model after onnxruntime's own optimisations, at its default level.

    Inputs, outputs and metadata are kept. A model above `MAX_BAKED_BYTES` is returned unchanged, and so is one that grows even
    without constant folding, because onnxruntime would upcast weights that are stored in narrow types.

    Args:
        model: the model, which is not changed.
        source: its message, or a file of it whose large weights are external; written if it is None.
        packs: whether onnxruntime may pack convolutions for the block size of this machine; other machines cannot run these.
        folds: whether onnxruntime may fold constants, for which it runs kernels.

    Raises:
        ModelError: onnxruntime cannot load the model, or its own optimised form of it.
    """
    size = weight_bytes(model)
    if size > MAX_BAKED_BYTES:
        return model
    disabled = [] if packs else [_LAYOUT_OPTIMISER]
    for more in ([], [_CONSTANT_FOLDING]) if folds else ([_CONSTANT_FOLDING],):
        baked = _optimised(model, [*disabled, *more], source)
        if weight_bytes(baked) <= size * (1 + _PADDED) + _NEGLIGIBLE:
            return _fixed_point(baked, [*disabled, *more])
    return model


def _fixed_point(baked: ir.Model, disabled: list[str]) -> ir.Model:
    """A baked model in which onnxruntime finds nothing left to rewrite, or the result of the last round."""
    for _ in range(_ROUNDS - 1):
        if weight_bytes(baked) > MAX_REBAKED_BYTES:
            break
        before, size = _op_types(baked), weight_bytes(baked)
        again = _optimised(baked, disabled)
        if weight_bytes(again) > size + _NEGLIGIBLE:
            break
        baked = again
        if _op_types(baked) == before:
            break
    return baked


def _op_types(model: ir.Model) -> Counter[tuple[str, str]]:
    """The number of nodes of each type."""
    return Counter((node.domain, node.op_type) for node in model.graph.all_nodes())


def _optimised(model: ir.Model, disabled: list[str], source: bytes | str | None = None) -> ir.Model:
    """The optimised form of a model with some optimisers disabled."""
    with scratch_folder() as folder:
        baked = normalized(_saved_by_onnxruntime(model, disabled, folder, source), model)
    if any(node.op_type in _REWRITTEN_TWICE for node in baked.graph.all_nodes()):
        _load(baked, to_bytes(baked), disabled)
    return baked


def _saved_by_onnxruntime(model: ir.Model, disabled: list[str], folder: Path, source: bytes | str | None) -> ir.Model:
    """The model that onnxruntime saves; it can be used when the folder does not exist any more."""
    saved = folder / "baked.onnx"
    if weight_bytes(model) <= MAX_BYTES_IN_MEMORY:  # several copies of a larger message take longer than two files
        _load(model, to_bytes(model) if source is None else source, disabled, saved)
        return read(saved)
    if source is None:
        source = str(folder / "model.onnx")
        write(model, source, external_data="model.onnx.data")
    _load(model, source, disabled, saved, EXTERNAL_WEIGHTS)
    return read(saved)


def _load(
    model: ir.Model,
    source: bytes | str,
    disabled: list[str],
    saved: Path | None = None,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Load a model, of which `source` is the message or the file, in onnxruntime, and save its optimised form."""
    try:
        inference_session(source, disabled=disabled, saved=saved, config=config)
    except RUNTIME_ERRORS as error:
        raise_if_out_of_memory(error)
        raise ModelError(f"onnxruntime cannot load it: {error}", where=model.graph.name or "model") from error


def drop_inner_types(model: ir.Model) -> None:
    """Remove the declared types of inner values and constants, which onnxruntime infers faster than it reads them."""
    kept = {*model.graph.inputs, *model.graph.outputs}
    computed = (value for node in model.graph for value in node.outputs)
    for value in (*computed, *model.graph.initializers.values()):
        if value not in kept:
            value.shape, value.type = None, None
