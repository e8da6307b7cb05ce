"""Base models of structural mutants: pieces of real networks, models with subgraphs, whole networks.

A piece consists of consecutive nodes of a network of `examples/zoo`, with their weights and declared shapes. A piece takes
milliseconds to run, a whole network seconds, so most examples are pieces.
"""

from functools import lru_cache

import control_flow_models
import numpy as np
import onnx
import zoo
from onnx import TensorProto, helper

from .choices import Choices, chance, pick, weighted

_MAX_WEIGHTS = 120_000  # elements of all weights of a piece
_MAX_ELEMENTS = 120_000  # of one value of a piece
_MAX_NODES = 24  # nodes of a piece
_SIDE = 48  # pixels, instead of the 224 that whole networks declare
_WHOLE = ("efficientnet_b0", "keras_mobilenetv3s", "mobilenetv2")
_TRIES = 50


def base_model(choices: Choices) -> onnx.ModelProto:
    """A valid model, which the caller may change."""
    kind = weighted(choices, [("piece", 85), ("body", 13), ("whole", 2)])
    if kind == "body":
        return control_flow_models.load(pick(choices, sorted(control_flow_models.MODELS)))
    if kind == "whole":
        return onnx.ModelProto.FromString(_whole(pick(choices, _WHOLE)))
    return _piece(choices)


def _piece(choices: Choices) -> onnx.ModelProto:
    for _ in range(_TRIES):
        name = pick(choices, zoo.NAMES)
        first = choices.number(0, len(_network(name).graph.node) - 2)
        piece = _cut(name, first, first + choices.number(2, _MAX_NODES))
        if piece is not None:
            if chance(choices, 50):
                del piece.graph.value_info[:]
            return piece
    raise AssertionError("a network has small pieces")


def _cut(name: str, first: int, last: int) -> onnx.ModelProto | None:
    """The nodes from `first` to `last`; None if they are too large or need inputs other than floating-point tensors."""
    model, (weights, infos) = _network(name), _parts(name)
    nodes = list(model.graph.node)[first:last]
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
    rest = {name for node in list(model.graph.node)[last:] for name in node.input} | {
        each.name for each in model.graph.output
    }
    given = [name for name in read if name not in weights]
    unread = made - {name for node in nodes for name in node.input}
    outputs = [name for node in nodes for name in node.output if name in made and (name in rest or name in unread)]
    inner = [name for name in made if name in infos]
    if not all(name in infos and _is_small(infos[name]) for name in (*given, *outputs)):
        return None
    if any(infos[name].type.tensor_type.elem_type != TensorProto.FLOAT for name in given) or not given:
        return None
    if not all(_is_small(infos[name]) for name in inner):
        return None
    used = [weights[name] for name in read if name in weights]
    if sum(int(np.prod(tensor.dims)) for tensor in used) > _MAX_WEIGHTS:
        return None
    graph = helper.make_graph(
        nodes,
        "piece",
        [infos[name] for name in given],
        [infos[name] for name in outputs],
        value_info=[infos[name] for name in sorted(inner) if name not in outputs],
    )
    piece = helper.make_model(graph, ir_version=model.ir_version, opset_imports=model.opset_import)
    piece.graph.initializer.extend(used)
    return zoo.filled(piece)


def _is_small(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    known = all(dim.HasField("dim_value") for dim in dims)
    return known and int(np.prod([dim.dim_value for dim in dims])) <= _MAX_ELEMENTS


@lru_cache(maxsize=32)
def _network(name: str) -> onnx.ModelProto:
    return onnx.load(zoo.FOLDER / f"{name}.onnx")


@lru_cache(maxsize=32)
def _parts(name: str) -> tuple[dict[str, TensorProto], dict[str, onnx.ValueInfoProto]]:
    """The weights of a network and its declarations, by name."""
    graph = _network(name).graph
    infos = {each.name: each for each in (*graph.input, *graph.value_info, *graph.output)}
    return {tensor.name: tensor for tensor in graph.initializer}, infos


@lru_cache(maxsize=len(_WHOLE))
def _whole(name: str) -> bytes:
    """A whole network for small images, without its declared shapes of inner values."""
    model = zoo.load(name)
    del model.graph.value_info[:]
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = _SIDE if dim.dim_value > _SIDE else dim.dim_value
    for each in model.graph.output:
        each.type.tensor_type.ClearField("shape")
    return model.SerializeToString()


def prepare() -> None:
    """Load the networks once, before processes are started."""
    for name in zoo.NAMES:
        _parts(name)
    for name in _WHOLE:
        _whole(name)
