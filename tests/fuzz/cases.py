"""Random graphs with random optimisation options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import assume
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from test_rules_samples import is_valid

from layoutopt.cost import CostModel
from layoutopt.cost_models import target_names
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects import DIALECTS
from layoutopt.formats import Format, as_shape
from layoutopt.passes.base import Mode
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.testing.rules import sample_formats

from .choices import Choices, Drawn, Seeded, between, chance, pick, weighted
from .costs import RandomTarget
from .graph_builder import (
    LOCAL,
    Array,
    GraphBuilder,
    Rejected,
    Step,
    every_node,
    free_names,
    imports,
    info,
    random_array,
    subgraphs,
)
from .layers import CHANNELS, LAYERS
from .motifs import MOTIFS
from .op_samples import add_op_sample
from .scopes import branch, function, loop

OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 22, 23, 24, 25, 26)
MAX_NODES = 9  # steps, some of which add several nodes
_TRIES = 4  # attempts per step
_SYMBOLS = ("N", "H", "W", "T")


@dataclass
class Case:
    """One example."""

    model: onnx.ModelProto
    feeds: list[dict[str, Array]]  # the first are those that it has been grown on
    steps: list[Step]  # its nodes, to be run one by one
    constants: dict[str, Array]
    target: str | CostModel
    dialect: str | None
    mode: Mode
    pins: dict[str, Format] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)  # given sizes of symbolic dimensions
    seed: int = 0  # for later choices, such as the form in which the model is passed

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the symbolic dimensions at which the model has been grown."""
        return {
            dim.dim_param: size
            for each in self.model.graph.input
            if each.name in self.feeds[0]
            for dim, size in zip(each.type.tensor_type.shape.dim, self.feeds[0][each.name].shape, strict=True)
            if dim.dim_param
        }

    def __repr__(self) -> str:
        """The representation that hypothesis prints."""
        target = self.target if isinstance(self.target, str) else self.target.name
        pins = {name: str(format) for name, format in self.pins.items()}
        asked = f"target={target!r} dialect={self.dialect!r} mode={self.mode!r} pins={pins}"
        return f"Case({asked} seed={self.seed}\n{onnx.printer.to_text(self.model)})"


@st.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    """The strategy of hypothesis, which rejects draws without a graph."""
    case = build(Drawn(draw))
    assume(case is not None)
    assert case is not None
    return case


def case_of(seed: int) -> Case | None:
    """The example of a seed; None if no graph results."""
    return build(Seeded(seed))


def build(choices: Choices) -> Case | None:
    """A random graph with random options."""
    g = GraphBuilder(choices, pick(choices, OPSETS[::-1]))
    g.dtype = weighted(choices, [(np.float32, 16), (np.float16, 3), (np.float64, 1)])
    g.may_be_empty = chance(choices, 4)
    _first_inputs(g)
    for _ in range(choices.number(1, MAX_NODES)):
        for _ in range(_TRIES):
            if _grow(g):
                break
    model = _model(g)
    if model is None:
        return None
    feeds = [dict(g.inputs)]
    symbols = _name_dimensions(g, model)
    if symbols:
        feeds.append(_other_feed(g, model, symbols))
    _restate(g, model)
    if not is_valid(model):
        return None
    _drop_shapes(g, model)
    case = Case(
        model, feeds, g.steps, g.constants, *draw_target(choices), mode="inference", seed=choices.number(0, 1 << 16)
    )
    case.mode = pick(choices, ("inference", "inference", "inference", "training"))
    case.pins = _pins(g, model)
    return case


def _first_inputs(g: GraphBuilder) -> None:
    rank = weighted(g.choices, [(4, 12), (3, 4), (2, 2), (5, 1), (1, 1), (0, 0)])
    batch, image = pick(g.choices, (1, 2, 3)), [between(g.choices, 1, 6) for _ in range(3)]
    for _ in range(between(g.choices, 1, 3)):
        channels = pick(g.choices, CHANNELS)
        shape = {1: [channels], 2: [batch, channels], 3: [batch, image[0], channels]}.get(
            rank, [batch, channels, *image[: rank - 2]]
        )
        g.input(shape)
    if g.may_be_empty and chance(g.choices, 50):
        g.input([0, *shape[1:]])


def _grow(g: GraphBuilder) -> bool:
    """Add one step, and return whether that succeeded."""
    makers = [*LAYERS, *MOTIFS, (add_op_sample, 45)]
    makers += [(lambda inner, m=maker: m(inner, _grow_inside), 3) for maker in (branch, loop, function)]
    count = len(g.nodes)
    try:
        weighted(g.choices, makers)(g)
    except Rejected:
        return len(g.nodes) > count
    return True


def _grow_inside(g: GraphBuilder) -> None:
    for _ in range(between(g.choices, 1, 3)):
        _grow(g)


def _model(g: GraphBuilder) -> onnx.ModelProto | None:
    """The model of the built graph; None if it is empty."""
    written = {name for node in g.nodes for name in node.output}
    computed = [name for node in g.nodes for name in node.output if name in g.values and name not in g.constants]
    read = {name for step in g.steps for name in step.reads}
    outputs = [name for name in computed if name not in read and not chance(g.choices, 8)]
    outputs += [name for name in computed if name in read and chance(g.choices, 12)]
    outputs = outputs or computed[-1:]
    if not outputs:
        return None
    if chance(g.choices, 3):
        outputs.append(pick(g.choices, list(g.inputs)))
    ir_version = between(g.choices, 8 if g.functions else 3 if g.opset <= 8 else 4, 10)
    constants = {name: value for name, value in g.constants.items() if name not in written}
    listed = [name for name in constants if ir_version < 4 or chance(g.choices, 3)]
    graph = helper.make_graph(
        g.nodes,
        pick(g.choices, ("graph", "g", "main graph")),
        [info(name, value) for name, value in g.inputs.items()] + [info(name, constants[name]) for name in listed],
        [info(name, g.values[name]) for name in outputs],
        initializer=[numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = imports(g.opset, graph.node, g.functions)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, functions=g.functions)


def _name_dimensions(g: GraphBuilder, model: onnx.ModelProto) -> dict[str, int]:
    """Make dimensions of inputs symbolic and remove the shapes of outputs; the sizes of the names."""
    if not chance(g.choices, 30):
        return {}
    names = [name for name in _SYMBOLS if chance(g.choices, 60)] or ["N"]
    symbols: dict[str, int] = {}
    for each in model.graph.input:
        dims = each.type.tensor_type.shape.dim
        if each.name not in g.inputs:
            continue
        for axis, name in {0: "N", **({1: "T"} if len(dims) == 3 else {2: "H", 3: "W"})}.items():
            if (
                name in names
                and axis < len(dims) > 1
                and symbols.setdefault(name, dims[axis].dim_value) == dims[axis].dim_value
            ):
                dims[axis].dim_param = name
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    bodies = [graph for node in every_node(nodes) for graph in subgraphs(node)]
    declared = [*model.graph.output, *(each for graph in bodies for each in (*graph.input, *graph.output))]
    for dim in (dim for each in declared for dim in each.type.tensor_type.shape.dim):
        dim.Clear()
    return symbols


def _other_feed(g: GraphBuilder, model: onnx.ModelProto, symbols: Mapping[str, int]) -> dict[str, Array]:
    """Inputs of other sizes."""
    extents = {name: pick(g.choices, (1, 2, 4, extent)) for name, extent in symbols.items()}
    feed = {}
    for each in model.graph.input:
        if each.name in g.inputs:
            dims = each.type.tensor_type.shape.dim
            shape = [extents[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
            feed[each.name] = random_array(between(g.choices, 0, 99), shape, g.inputs[each.name].dtype)
    return feed


def _restate(g: GraphBuilder, model: onnx.ModelProto) -> None:
    """Add types of inner values and documentation, as some files have."""
    if chance(g.choices, 30):
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=chance(g.choices, 50))
        except onnx.shape_inference.InferenceError:
            return
        model.graph.value_info.extend(each for each in inferred.graph.value_info if chance(g.choices, 70))
    if chance(g.choices, 10):
        model.doc_string, model.producer_name = "what it is", "fuzz"
        model.metadata_props.add(key="author", value="näme")


def _drop_shapes(g: GraphBuilder, model: onnx.ModelProto) -> None:
    """Remove shapes or types of outputs, which only onnx's checker requires."""
    if chance(g.choices, 20):
        for each in [each for each in model.graph.output if each.name not in g.inputs]:
            if chance(g.choices, 50):
                each.type.tensor_type.ClearField("shape")
            elif chance(g.choices, 10) and all(node.domain in ("", LOCAL) for node in every_node(g.nodes)):
                each.ClearField("type")


def draw_target(choices: Choices) -> tuple[str | CostModel, str | None]:
    """A target and a dialect that this machine can run."""
    seed, cast = choices.number(0, 1 << 16), pick(choices, (0.6, 0.1, 2.0))
    native = blocked_channels() is not None and host_target() in ("cpu-avx2", "cpu-avx512")
    way = weighted(choices, [("any", 4), ("native", 4 if native else 0), ("kernels", 4), ("real", 3)])
    dialect = pick(choices, [name for name, each in DIALECTS.items() if not each.is_native])
    if way == "any":
        return RandomTarget(seed, cast=cast), dialect
    if way == "native":
        return RandomTarget(seed, "cpu", cast), "onnxruntime"
    if way == "kernels":
        return RandomTarget(seed, pick(choices, target_names()), cast), dialect
    target, own = pick(choices, [("cpu", None), *((name, pick(choices, (None, dialect))) for name in target_names())])
    is_for_another_machine = own is None and target.startswith("cpu-avx") and target != host_target()
    return target, dialect if is_for_another_machine else own


def _pins(g: GraphBuilder, model: onnx.ModelProto) -> dict[str, Format]:
    """Random pins of inputs, outputs and inner values that no subgraph captures."""
    if not chance(g.choices, 25):
        return {}
    captured = {name for node in g.nodes for name in free_names(node)}
    declared = {each.name: each for each in (*model.graph.input, *model.graph.output)}
    names = [
        name
        for name, each in declared.items()
        if name not in captured
        and name in g.values
        and name not in g.constants
        and each.type.tensor_type.HasField("shape")
    ]
    inner = [name for name in g.values if name not in declared and name not in g.constants and name not in captured]
    found = {}
    for name in [*(each for each in names if chance(g.choices, 60)), *(each for each in inner if chance(g.choices, 5))]:
        shape = g.values[name].shape
        dims = declared[name].type.tensor_type.shape.dim if name in declared else ()
        known = [dim.dim_value or "?" for dim in dims] if len(dims) == len(shape) else ["?"] * len(shape)
        options = [each for each in sample_formats(shape, is_thorough=False) if each.fits(as_shape(known))]
        if options:
            found[name] = pick(g.choices, options)
    return found
