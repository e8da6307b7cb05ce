"""Perturbation of a model by as much as rounding may change it.

Every element of an input moves by one unit up or down. Every sum, in a contraction, pooling, reduction or normalisation, moves
by the error that an algorithm may make, which is relative to the magnitudes of its terms and not to the result: kernels for
other formats sum in other orders. Inputs of whole numbers are not perturbed: they are more often extents, indices and masks
than measurements.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper

from layoutopt.dialects.onnxruntime.winograd import error_growths as declared_growths
from layoutopt.ir.types import Array
from layoutopt.onnx_io.messages import graphs
from layoutopt.onnx_io.tensors import tensors
from layoutopt.verification.difference import EPSILONS
from layoutopt.verification.edits import NARROW

_MAX_PARAMETER_ELEMENTS = 8  # constants of up to 8 elements are scales of a Resize, exponents, thresholds
_AMPLITUDE = 3**0.5  # of uniform random numbers with the root mean square 1

_UNITS: dict[int, float] = {
    TensorProto.FLOAT: 2.0**-24,
    TensorProto.DOUBLE: 2.0**-53,
    TensorProto.FLOAT16: 2.0**-11,
    TensorProto.BFLOAT16: 2.0**-8,
}
"""The relative error of one rounding, by element type."""


def perturbed_inputs(feed: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs of a model with every floating-point element one unit in the last place higher or lower.

    Arrays of whole numbers, and of other element types than those of `EPSILONS`, are the same objects as in `feed`.
    """
    generator = np.random.default_rng(seed)
    return {name: _perturbed(value, generator) for name, value in feed.items()}


def perturb_narrow_weights(model: onnx.ModelProto, seed: int) -> None:
    """Move weights of 16 bits by one unit in the last place, without external data and tensors of at most 8 elements."""
    generator = np.random.default_rng(seed)
    for _, tensor in tensors(model):
        is_stored = tensor.data_location != TensorProto.EXTERNAL
        if tensor.data_type in NARROW and is_stored and np.prod(tensor.dims) > _MAX_PARAMETER_ELEMENTS:
            moved = _perturbed(numpy_helper.to_array(tensor), generator)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))


COHERENT = -1
"""The seed of noise that has one sign, as the rounding errors of equal sums have."""

_SUMMANDS = {
    "Conv": (1, 0),
    "FusedConv": (1, 0),
    "ConvTranspose": (1, 1),
    "MatMul": (0, -1),
    "FusedMatMul": (0, -1),
    "Gemm": (0, -1),
    "Einsum": (0, -1),
}
"""Contractions: each element sums as many products as an operand has elements per index
of an axis; axis -1: as many as the axis has."""

_REDUCTIONS = frozenset({"AveragePool", "CumSum", "GlobalAveragePool", "LpPool"}) | {
    f"Reduce{each}" for each in ("L1", "L2", "LogSumExp", "Mean", "Sum", "SumSquare")
}
"""Sums in one accumulator: the errors of n nearly equal numbers add up to n / 4 units, not to sqrt(n) / 3."""

_NORMALIZATIONS = ("Batch", "Group", "Instance", "Layer", "Lp", "MeanVariance", "RMS", "SimplifiedLayer", "SkipLayer")
_NONLINEAR = frozenset(
    ["Attention", "GRU", "GroupQueryAttention", "LRN", "LSTM", "MatMulNBits", "MultiHeadAttention", "RNN"]
) | {f"{each}Normalization" for each in _NORMALIZATIONS}
"""Ops that contain sums, but no sum of the magnitudes of their operands bounds the error: their first operand is perturbed."""

RANDOM_UNITS, COHERENT_UNITS = 0.5, 5.0
"""The error of a sum of n products, in units of 2^-24 times the sum of their magnitudes and sqrt(n) / 3 times their sum. Equal
sums have equal errors, and larger ones. In convolutions of 8 to 4608 products (random, positive, or over 3 decades) blocked
kernels and others differ by up to 2.5 units; in matrix products of 4096 equal products by 12. `SPREAD_FACTOR` times these
numbers are accepted."""


def perturb_sums(model: onnx.ModelProto, seed: int, growths: Mapping[str, float]) -> onnx.ModelProto:
    """The model with contractions and reductions that err as far as an algorithm may, in all bodies and functions.

    before: x, w -> Conv -> y
    after:  x, w -> Conv -> z      |x|, |w| -> Conv -> a      y = z + r c (g a + sqrt(n) / 3 |z|)      r random

    Here n is the number of products of an element, g the growth of the error by the algorithm of the rewritten model, and c is
    `RANDOM_UNITS`. Coherent noise is y = z + c sqrt(n) / 3 |z|, where c is `COHERENT_UNITS`. The first operand of `_NONLINEAR`
    ops becomes x + r c |x|. Results of 16 bits, which kernels sum in float32, move by one unit in the last place. Contractions
    of dequantised values, which onnxruntime computes in integers, stay.

    Args:
        model: a model, which is edited in place unless it has functions.
        seed: of the noise; `COHERENT` for noise of one sign.
        growths: g by the name of a contraction's result; 1 for others.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    types = _element_types(model)
    perturbed = _SUMMANDS.keys() | _REDUCTIONS | _NONLINEAR
    number = 0
    for graph in graphs(model):
        dequantised = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
        nodes_in_order = list[onnx.NodeProto]()
        for node in graph.node:
            number += 1
            kind, added = node.op_type, list[onnx.NodeProto]()
            if node.input and dequantised.isdisjoint(node.input) and kind in perturbed:
                value = node.input[0] if kind in _NONLINEAR else node.output[0]
                dtype = types.get(value, TensorProto.UNDEFINED if kind in _REDUCTIONS else TensorProto.FLOAT)
                if dtype in _UNITS:
                    stem = f"{node.output[0]}__{number}"
                    noise = _Noise(graph, stem, dtype, None if seed == COHERENT else seed + number, added)
                    noise.perturb(node, growths.get(value, 1.0))
            nodes_in_order += [*added, node] if kind in _NONLINEAR else [node, *added]
        del graph.node[:]
        graph.node.extend(nodes_in_order)
    return model


def error_growths(original: onnx.ModelProto, rewritten: onnx.ModelProto) -> dict[str, float]:
    """The growth of rounding errors by the algorithms of a rewritten model, by the name of the contraction's result.

    The names of a rewritten model declare the result of the original's ops that an algorithm computes: an activation, or the
    sum with a residual, behind the contraction.
    """
    producers = {name: node for node in original.graph.node for name in node.output if name}
    found: dict[str, float] = {}
    for declared, growth in declared_growths(name for node in rewritten.graph.node for name in node.output).items():
        name = declared
        while name not in producers and "__" in name:  # the name has the format as a suffix
            name = name.rpartition("__")[0]
        pending = [name]
        while pending:
            name = pending.pop()
            node = producers.get(name)
            if node is not None and node.op_type in _SUMMANDS:
                found[name] = max(growth, found.get(name, 1.0))
            elif node is not None:
                pending += node.input
    return found


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element types of the values of all graphs, where they can be inferred; if onnx refuses the model, those declared."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:  # of a fault that onnxruntime tolerates
        inferred = model
    types = {}
    for graph in graphs(inferred):
        types.update({each.name: each.data_type for each in graph.initializer})
        values = (*graph.input, *graph.value_info, *graph.output)
        types.update(
            {each.name: each.type.tensor_type.elem_type for each in values if each.type.HasField("tensor_type")}
        )
    return {name: dtype for name, dtype in types.items() if dtype}


class _Noise(Struct):
    """Nodes that perturb one value.

    Attributes:
        graph: the graph.
        stem: of the names of new values, which no other noise has.
        dtype: the element type of the value.
        seed: of the random numbers; None for 1 in their place.
        nodes: the new nodes, in topological order.
        count: the number of new values.
    """

    graph: onnx.GraphProto
    stem: str
    dtype: int
    seed: int | None
    nodes: list[onnx.NodeProto]
    count: int = 0

    def perturb(self, node: onnx.NodeProto, growth: float) -> None:
        """Perturb the first operand of a nonlinear node, or the result of another one."""
        unit = (COHERENT_UNITS if self.seed is None else RANDOM_UNITS) * _UNITS[self.dtype]
        if node.op_type in _NONLINEAR:
            x = node.input[0]
            node.input[0] = self._sum(x, self._scaled(x, unit), None)
            return
        name, exact = node.output[0], self._fresh()
        node.output[0] = exact
        if self.dtype in NARROW:
            bound = self._scaled(exact, 2 * _UNITS[self.dtype])
        else:
            terms, is_naive = self._summands(node, exact), node.op_type in _REDUCTIONS and self.seed is not None
            growing = self._scaled(terms, unit / 4) if is_naive else self._scaled(self._add("Sqrt", terms), unit / 3)
            bound = self._add("Mul", self._add("Abs", exact), growing)
            if self.seed is not None:
                bound = self._add("Add", bound, self._scaled(self._of_magnitudes(node), unit * growth))
        self._sum(exact, bound, name)

    def _summands(self, node: onnx.NodeProto, exact: str) -> str:
        """The number of products of an element."""
        if node.op_type in _REDUCTIONS:
            terms = self._add("Div", self._add("Size", node.input[0]), self._add("Size", exact))
        else:
            operand, axis = _SUMMANDS[node.op_type]
            terms = self._add(
                "Gather", self._add("Shape", node.input[operand]), self._constant(axis, TensorProto.INT64)
            )
            if axis >= 0:
                terms = self._add("Div", self._add("Size", node.input[operand]), terms)
        return self._add("Cast", terms, to=self.dtype)

    def _of_magnitudes(self, node: onnx.NodeProto) -> str:
        """The result of a node on the magnitudes of its operands."""
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        del twin.output[1:]
        twin.name = twin.output[0] = name = self._fresh()
        for index, operand in enumerate(node.input[:1] if node.op_type in _REDUCTIONS else node.input):
            twin.input[index] = self._add("Abs", operand) if operand else ""
        self.nodes.append(twin)
        return name

    def _scaled(self, name: str, factor: float) -> str:
        """The magnitudes of a value times a factor, in float32 for types of 16 bits."""
        wide = self._add("Cast", name, to=TensorProto.FLOAT) if self.dtype in NARROW else name
        return self._add("Mul", self._add("Abs", wide), self._constant(factor))

    def _sum(self, exact: str, bound: str, name: str | None) -> str:
        """A value plus the bound times a random number for every element."""
        noise = bound
        if self.seed is not None:
            random = self._add("RandomUniformLike", bound, low=-_AMPLITUDE, high=_AMPLITUDE, seed=float(self.seed))
            noise = self._add("Mul", bound, random)
        if self.dtype not in NARROW:
            return self._add("Add", exact, noise, name=name)
        wide = self._add("Add", self._add("Cast", exact, to=TensorProto.FLOAT), noise)
        return self._add("Cast", wide, name=name, to=self.dtype)

    def _add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its result."""
        name = name or self._fresh()
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, value: float, dtype: int | None = None) -> str:
        """The name of a new scalar, by default of the type in which noise is computed."""
        dtype = dtype or (TensorProto.FLOAT if self.dtype in NARROW else self.dtype)
        name = self._fresh()
        self.graph.initializer.append(helper.make_tensor(name, dtype, (), [value]))
        return name

    def _fresh(self) -> str:
        self.count += 1
        return f"{self.stem}__noise{self.count}"


def _perturbed(array: Array, generator: np.random.Generator) -> Array:
    """The array with every element moved by one unit in the last place; the same object if it is not perturbed."""
    if not isinstance(array, np.ndarray) or array.dtype.kind == "c" or str(array.dtype) not in EPSILONS:
        return array
    wide = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    finite = np.isfinite(wide)
    if np.array_equal(wide[finite], np.round(wide[finite])):
        return array
    signs = 2 * generator.integers(0, 2, array.shape, np.int8) - 1
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (wide * (1 + signs * wide.dtype.type(EPSILONS[str(array.dtype)]))).astype(array.dtype)
    return np.where(np.isfinite(moved.astype(wide.dtype)), moved, array)  # no new infinities
