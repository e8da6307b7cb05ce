"""Builder of random graphs node by node. Every new node is run, so that it is valid and its shapes are known."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from layoutopt.runtime.session import inference_session

from .choices import Choices, Rejected, between, chance, pick, weighted

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

MAX_ELEMENTS = 6000  # of a value; examples should be many, not large
LARGEST = 1e4  # magnitude of a value, so that no chain of ops ends in infinity
LOCAL = "local"  # the domain of functions of the model
_FLOATS = "fc"


@dataclass(frozen=True)
class Step:
    """A node that can run separately, with the values that it and its subgraphs read."""

    session: Any
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def run(self, values: Arrays) -> dict[str, Array]:
        """The values of its outputs."""
        # Copies, since BatchNormalization in training mode writes into its inputs.
        results = self.session.run(list(self.writes), {name: np.array(values[name]) for name in self.reads})
        return dict(zip(self.writes, results, strict=True))


@dataclass
class GraphBuilder:
    """Builder of a graph: the main graph, a subgraph or the body of a function."""

    choices: Choices
    opset: int
    dtype: Any = np.float32
    main: "GraphBuilder | None" = None  # None if this is it
    outer: "GraphBuilder | None" = None  # None for bodies of functions too, which see nothing else
    inputs: dict[str, Array] = field(default_factory=dict)  # of the main graph
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)  # all that can be read but constants of the graphs around
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    may_be_empty: bool = False
    _count: int = 0

    @property
    def root(self) -> "GraphBuilder":
        """The main graph."""
        return self.main or self

    @property
    def is_function(self) -> bool:
        """Whether this is the body of a function, which has no initializers."""
        return self.main is not None and self.outer is None

    @property
    def depth(self) -> int:
        """The nesting depth of the graph."""
        return 0 if self.outer is None else self.outer.depth + 1

    def subgraph(self) -> "GraphBuilder":
        """A builder of a subgraph, which captures values of this graph."""
        child = GraphBuilder(self.choices, self.opset, self.dtype, self.root, self, functions=self.functions)
        child.values = {name: value for name, value in self.values.items() if name not in self.constants}
        return child

    def function_body(self) -> "GraphBuilder":
        """The body of a function."""
        return GraphBuilder(self.choices, self.opset, self.dtype, self.root, functions=self.functions)

    # --- existing values -------------------------------------------------------------------------------------------

    def all_constants(self) -> dict[str, Array]:
        """The values of this graph and of the enclosing graphs."""
        return {**(self.outer.all_constants() if self.outer is not None else {}), **self.constants}

    def enclosing(self) -> "Iterator[GraphBuilder]":
        """The enclosing graphs, innermost first."""
        graph = self.outer
        while graph is not None:
            yield graph
            graph = graph.outer

    def fresh(self, stem: str) -> str:
        """A new name, sometimes an unusual one."""
        self.root._count += 1
        odd = weighted(self.choices, [("", 92), (":0", 2), ("/ü b", 2), (".1", 2), ("__NHWC", 2)])
        return f"{stem}{self.root._count}{odd}"

    def readable(self, rank: int | None = None, kind: str = "f", shape: tuple[int, ...] | None = None) -> list[str]:
        """The values that are not constants, filtered by rank, kinds of element types and shape."""
        return [
            name
            for name, value in self.values.items()
            if name not in self.constants
            and value.dtype.kind in kind
            and rank in (None, value.ndim)
            and shape in (None, value.shape)
        ]

    def pick(self, rank: int | None = None, kind: str = "f", shape: tuple[int, ...] | None = None) -> str:
        """A random one of these values, later ones with higher probability.

        Raises:
            Rejected: there is none.
        """
        names = self.readable(rank, kind, shape)
        if not names:
            raise Rejected
        return pick(self.choices, [*names[::-1][:2], *names[::-1][:4], *names[::-1]])

    def array(self, shape: Sequence[int], dtype: Any = None) -> Array:
        """Random numbers: small floating-point values, small indices, booleans."""
        return random_array(between(self.choices, 0, 1 << 16), shape, dtype or self.dtype)

    # --- new values ------------------------------------------------------------------------------------------

    def input(self, shape: Sequence[int], dtype: Any = None) -> str:
        """A new input of the main graph, which subgraphs capture."""
        if self.is_function or any(graph.is_function for graph in self.enclosing()):
            raise Rejected
        name, value = self.fresh("x"), self.array(shape, dtype)
        graph: GraphBuilder | None = self
        self.root.inputs[name] = value
        while graph is not None:
            graph.values[name] = value
            graph = graph.outer
        return name

    def constant(self, value: Any) -> str:
        """An initializer or a Constant node; an existing one if its elements are equal."""
        array = np.asarray(value, dtype=None if isinstance(value, np.ndarray | np.generic) else _plain_dtype(value))
        for name, other in self.constants.items():
            if other.dtype == array.dtype and np.array_equal(other, array) and chance(self.choices, 50):
                return name
        name = self.fresh("w")
        if self.is_function or chance(self.choices, 15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name)))
        self.constants[name] = self.values[name] = array
        return name

    def weight(self, shape: Sequence[int], scale: float | None = None) -> str:
        """Numbers that keep results in range: constants that may be shared or computed, or inputs of the model."""
        shape = tuple(int(dim) for dim in shape)
        if np.prod(shape) > MAX_ELEMENTS:
            raise Rejected
        known = self.all_constants().items()
        alike = [name for name, value in known if value.shape == shape and value.dtype == self.dtype]
        if alike and chance(self.choices, 25):
            return pick(self.choices, alike)
        spread = scale if scale is not None else max(1, int(np.prod(shape[1:]))) ** -0.5
        array = (self.array(shape).astype(np.float64) * spread).astype(self.dtype)
        way = between(self.choices, 0, 19)
        if way == 19 and not self.is_function:
            name = self.input(shape)
            self.values[name][...] = array
            return name
        if way == 18:
            return self.add("Mul", [self.constant(array * self.dtype(2)), self.constant(np.asarray(0.5, self.dtype))])
        if way == 17 and len(shape) > 1:
            perm = tuple(reversed(range(len(shape))))
            return self.add("Transpose", [self.constant(np.ascontiguousarray(array.transpose(perm)))], perm=perm)
        return self.constant(array)

    def add(self, op_type: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        return self.add_many(op_type, inputs, 1, domain, **attributes)[0]

    def add_many(
        self, op_type: str, inputs: Sequence[str], count: int, domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs, and return their names.

        Raises:
            Rejected: onnxruntime cannot run it, or the result is too large.
        """
        outputs = [self.fresh("v") for _ in range(count)]
        label = pick(self.choices, [f"{op_type}_{outputs[0]}", "", f"/layer/{outputs[0]}/{op_type}"])
        return self.append(helper.make_node(op_type, inputs, outputs, name=label, domain=domain, **attributes))

    def append(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """Add a node, and return the names of its outputs; Rejected as in `add_many`."""
        if not node.domain and since(node.op_type, self.opset) is None:
            raise Rejected  # onnxruntime supports some ops that onnx has removed
        try:
            step = single_node_step(node, self.values, self.all_constants(), self.opset, self.functions)
            found = step.run(self.values)
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise Rejected from error
        if not all(self._is_fine(value) for value in found.values()):
            raise Rejected
        self.nodes.append(node)
        self.values.update(found)
        if self.main is None:
            self.steps.append(step)
        return step.writes

    def _is_fine(self, value: Any) -> bool:
        if not isinstance(value, np.ndarray) or value.size > MAX_ELEMENTS or value.ndim > 6 or value.dtype == object:
            return False
        if value.size == 0:
            return self.root.may_be_empty
        return value.dtype.kind not in _FLOATS or bool((np.abs(value) <= LARGEST).all())


def single_node_step(
    node: onnx.NodeProto, values: Arrays, constants: Arrays, opset: int, functions: Sequence[onnx.FunctionProto]
) -> Step:
    """A model of a single node."""
    reads = list(dict.fromkeys(name for name in (*node.input, *free_names(node)) if name))
    given = tuple(name for name in reads if name not in constants)
    graph = helper.make_graph(
        [node],
        "one",
        [info(name, values[name]) for name in given],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        initializer=[numpy_helper.from_array(constants[name], name) for name in reads if name in constants],
    )
    opsets = imports(opset, graph.node, functions)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
    session = inference_session(model.SerializeToString(), is_optimised=False)
    return Step(session, given, tuple(name for name in node.output if name))


@lru_cache(maxsize=4096)
def since(kind: str, opset: int) -> int | None:
    """The version of an op of ai.onnx at `opset`; None if there is no such op."""
    try:
        return int(onnx.defs.get_schema(kind, opset).since_version)
    except onnx.defs.SchemaError:
        return None


def random_array(seed: int, shape: Sequence[int], dtype: Any) -> Array:
    """Random numbers of an element type."""
    generator, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "f":
        return generator.normal(size=tuple(shape)).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, tuple(shape)).astype(dtype)
    low, high = (0, 3) if dtype == np.int64 else (0 if dtype.kind == "u" else -9, 9)
    return generator.integers(low, high, tuple(shape)).astype(dtype)


def info(name: str, value: Array, dims: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    """The declaration of a value."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape if dims is None else dims
    )


def imports(opset: int, nodes: Iterable[onnx.NodeProto], functions: Sequence[onnx.FunctionProto]) -> list[Any]:
    """The opset imports of a graph with these nodes."""
    domains = {node.domain for node in every_node(nodes)} | ({LOCAL} if functions else set())
    for function in functions:
        domains |= {node.domain for node in every_node(function.node)}
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains) if domain)]


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from every_node(graph.node)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def free_names(node: onnx.NodeProto) -> list[str]:
    """The values that the subgraphs of a node capture."""
    found = []
    for graph in subgraphs(node):
        known = {each.name for each in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            found += [name for name in (*inner.input, *free_names(inner)) if name and name not in known]
            known.update(inner.output)
        found += [each.name for each in graph.output if each.name not in known]
    return found


def _plain_dtype(value: Any) -> Any:
    return np.float32 if isinstance(value, float) else np.int64
