"""Steps that add samples of single ops, bodies included: every op with a rule, and some without.

The first operand of a sample is replaced by a value of the graph. Equal extents of other operands change with it: if the sample
has 17 channels in two operands, both get the channels of the value. If that does not run, the value is reshaped and padded to
the shape of the sample.
"""

from copy import deepcopy
from functools import cache

import numpy as np
import onnx
from test_rules_handmade import Sample
from test_rules_samples import Draft, drafts, is_standard

from layoutopt.ops import rules
from layoutopt.ops.base import OLDEST_OPSET

from .choices import between, chance, pick
from .graph_builder import Array, GraphBuilder, Rejected, since, subgraphs

WITHOUT_RULES = (
    *("CumSum", "Einsum", "EyeLike", "GatherElements", "GatherND", "GridSample", "IsInf", "LSTM", "MatMulInteger"),
    *("MeanVarianceNormalization", "OneHot", "QLinearConv", "QLinearMatMul", "ReverseSequence", "ScatterElements"),
    *("ScatterND", "Tile", "TopK", "Trilu", "Compress", "DynamicQuantizeLinear", "Range", "CenterCropPad"),
)


@cache
def _drafts(kind: str) -> list[Draft]:
    """The samples with static extents."""
    return [each for each in drafts(kind, is_thorough=False) if not each.name.endswith("dynamic")]


@cache
def _made(draft: Draft) -> Sample | None:
    return draft.make()


def prepare() -> None:
    """Find all samples once, before processes are started."""
    for kind in (*rules(), *WITHOUT_RULES):
        _drafts(kind)


def add_op_sample(g: GraphBuilder) -> None:
    """A random op with a rule, sometimes one without."""
    add_sample(g, pick(g.choices, [*rules(), *rules(), *WITHOUT_RULES]))


def add_sample(g: GraphBuilder, kind: str) -> None:
    """A sample of an op.

    Raises:
        Rejected: it does not run with the values of the graph, or differs at the graph's opset.
    """
    version = max(since(kind, g.opset) or 0, OLDEST_OPSET) if is_standard(kind) else 1
    fitting = [draft for draft in _drafts(kind) if draft.since == version]
    sample = None
    while fitting and sample is None:  # some opsets have no such model, and one operand has none to be constant
        sample = _made(fitting.pop(between(g.choices, 0, len(fitting) - 1)))
    if sample is None or not _suits(sample, g):
        raise Rejected
    node, operands = sample.model.graph.node[0], _operands(sample)
    for function in sample.model.functions:
        if all(each.name != function.name for each in g.functions):
            copy = deepcopy(function)
            copy.opset_import[0].version = g.opset
            g.functions.append(copy)
    ways = [_stretched, _reshaped, _as_it_is] if chance(g.choices, 70) else [_as_it_is]
    for way in ways:
        try:
            _append_sample(g, node, way(g, node, operands))
            return
        except Rejected:
            continue
    raise Rejected


def _suits(sample: Sample, g: GraphBuilder) -> bool:
    """Whether the op can be added alone and has the same semantics at the opset of the graph."""
    node = sample.model.graph.node[0]
    if sample.model.functions:
        return not g.is_function and all(
            each.version <= g.opset for each in sample.model.opset_import if not each.domain
        )
    return bool(node.input)


def _operands(sample: Sample) -> dict[str, tuple[Array, bool]]:
    """The inputs by name, and whether they are constants."""
    found = {name: (np.asarray(array), False) for name, array in sample.feeds[0].items()}
    for tensor in sample.model.graph.initializer:
        found[tensor.name] = (onnx.numpy_helper.to_array(tensor), True)
    return found


def _append_sample(g: GraphBuilder, node: onnx.NodeProto, names: dict[str, str]) -> None:
    copy = deepcopy(node)
    copy.name = g.fresh(node.op_type)
    del copy.input[:], copy.output[:]
    copy.input.extend(names.get(name, "") for name in node.input)
    copy.output.extend(g.fresh("v") if name else "" for name in node.output)
    for graph in subgraphs(copy):
        _rename(g, graph, names)
    g.append(copy)


def _rename(g: GraphBuilder, graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Replace the operands of a body by values of the enclosing graph, and give its values new names."""
    inner = [*(each.name for each in graph.input), *(name for node in graph.node for name in node.output)]
    names = {**names, **{name: g.fresh("v") for name in inner if name}}
    for each in (*graph.input, *graph.output):
        each.name = names[each.name]
    del graph.value_info[:]
    for node in graph.node:
        node.input[:] = [names.get(name, "") for name in node.input]
        node.output[:] = [names.get(name, "") for name in node.output]
        for child in subgraphs(node):
            _rename(g, child, names)


def _first(node: onnx.NodeProto, operands: dict[str, tuple[Array, bool]]) -> str:
    name = next((name for name in node.input if name), "")
    if name not in operands or operands[name][1]:
        raise Rejected
    return name


def _stretched(g: GraphBuilder, node: onnx.NodeProto, operands: dict[str, tuple[Array, bool]]) -> dict[str, str]:
    """The op on a value of the same rank, with the other operands resized accordingly."""
    first = _first(node, operands)
    sample = operands[first][0]
    x = g.pick(sample.ndim, sample.dtype.kind)
    if g.values[x].dtype != sample.dtype:
        raise Rejected
    extents = dict(zip(sample.shape, g.values[x].shape, strict=True))
    names = {first: x}
    for name, (array, is_constant) in operands.items():
        if name == first:
            continue
        shape = tuple(extents.get(dim, dim) for dim in array.shape)
        if array.dtype.kind != "f":
            names[name] = g.constant(array)
        elif shape == array.shape:
            names[name] = _operand(g, array, is_constant)
        else:
            positive = bool((array >= 0).all())
            fresh = g.array(shape, array.dtype)
            names[name] = _operand(g, np.abs(fresh) + array.dtype.type(0.1) if positive else fresh, is_constant)
    return names


def _reshaped(g: GraphBuilder, node: onnx.NodeProto, operands: dict[str, tuple[Array, bool]]) -> dict[str, str]:
    """The op of the sample on a value that is reshaped to the shape of the sample."""
    first = _first(node, operands)
    sample = operands[first][0]
    x = g.pick(kind=sample.dtype.kind)
    if g.values[x].dtype != sample.dtype or not sample.size or not g.values[x].size:
        raise Rejected
    if g.values[x].size != sample.size:
        flat = g.add("Reshape", [x, g.constant([-1])])
        short = sample.size - g.values[flat].size
        pads = [0, short]
        x = g.add("Pad", [flat], pads=pads) if g.opset < 11 else g.add("Pad", [flat, g.constant(pads)])
    names = {first: g.add("Reshape", [x, g.constant(list(sample.shape))])}
    return {**_rest(g, operands, first), **names}


def _as_it_is(g: GraphBuilder, node: onnx.NodeProto, operands: dict[str, tuple[Array, bool]]) -> dict[str, str]:
    """The op on new operands."""
    return _rest(g, operands, "")


def _rest(g: GraphBuilder, operands: dict[str, tuple[Array, bool]], but: str) -> dict[str, str]:
    return {name: _operand(g, array, is_constant) for name, (array, is_constant) in operands.items() if name != but}


def _operand(g: GraphBuilder, array: Array, is_constant: bool) -> str:
    """A constant, an input of the model, or an existing value of the same shape."""
    if array.dtype.kind == "f":
        fitting = [name for name in g.readable(shape=array.shape) if g.values[name].dtype == array.dtype]
        if fitting and chance(g.choices, 40):
            return pick(g.choices, fitting)
        if not is_constant and not g.is_function and chance(g.choices, 50):
            name = g.input(array.shape, array.dtype)
            g.values[name][...] = array
            return name
    return g.constant(array)
