"""The law of layout rules: under every signature, an op computes the same as in canonical formats.

The op runs under each signature that the rule completes. The operands are stored in its formats, their padding elements have
the worst values that the signature accepts, and the result is unpacked and compared. The padding elements of the result must be
in the state that the signature declares.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from layoutopt.cost import CostModel
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS
from layoutopt.formats import Format, Shape, pack, unpack
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import Array, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ir.verify import violations
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.ops import Inapplicable, is_canonical, rule_of, with_padding_states
from layoutopt.passes import PretransformWeights
from layoutopt.passes.base import PassContext, Pipeline
from layoutopt.passes.planning import assign
from layoutopt.record import Record
from layoutopt.runtime.session import Session
from layoutopt.verification.difference import difference, element_type, largest_magnitude

Feed: TypeAlias = Mapping[str, Array]


Loader: TypeAlias = Callable[[bytes], Any]
"""Loads a serialised model; `run(names, feeds)` of what it returns has the outputs with the given names, or all for None."""


class Sample(Record, eq=False):
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


def load_in_onnxruntime(model: bytes) -> Session:
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


TOLERANCES: dict[str, float] = {
    "float64": 1e-7,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "float8": 0.25,
    "int8": 0.02,
    "uint8": 0.02,
}


class ToleranceComparison(Record):
    """The difference of one output and its tolerance, both relative to its largest magnitude."""

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.error <= self.tolerance


def compare(expected: Any, actual: Any) -> ToleranceComparison:
    """The comparison of an output with the expected one."""
    dtype = element_type(expected)
    tolerance = next((limit for prefix, limit in TOLERANCES.items() if dtype.startswith(prefix)), 0.0)
    if dtype in ("int8", "uint8") and largest_magnitude(expected):
        # One step, where a sum in another order is rounded otherwise.
        tolerance = max(tolerance, 1.01 / largest_magnitude(expected))
    return ToleranceComparison(difference(expected, actual).largest, tolerance)


_NO_TARGET = cast(CostModel, None)


def lower(graph: Graph, dialect: str) -> Graph:
    """The lowered graph, with all passes of the dialect; the planned graph is not changed, nor are its invariants checked."""
    context = PassContext(_NO_TARGET)
    lowered = DIALECTS[dialect].lower(graph)
    Pipeline(DIALECTS[dialect].passes).run(lowered, context)
    return lowered


_ANY_TARGET = "gpu-hopper"  # whose prices decide nothing: all packed weights fit the limit of growth
_LARGE = 1e4  # limit of finite padding, times the largest number of the inputs


def lifted(model: onnx.ModelProto) -> Graph:
    """The graph of a model."""
    return lift(ir.serde.deserialize_model(model))


def forced(graph: Graph, signature: Signature) -> Graph:
    """The graph with its op under a signature, and its inputs and outputs in the storages of that signature."""
    assert isinstance(graph.origin, ir.Model)
    graph = lift(graph.origin)
    (op,) = graph.ops
    assign(graph, op, signature, set(graph.values))
    for value in graph.inputs:
        inputs = [signature.inputs[index] for index, each in enumerate(op.inputs) if each is value]
        storages = [storage for storage in inputs if storage is not None]
        if storages:
            alike = [storage.padding for storage in storages if storage.format == storages[0].format]
            value.storage = Storage(storages[0].format, min(alike))
    required = ((index, value.storage) for index, value in enumerate(graph.outputs))
    graph.output_storages = {index: storage for index, storage in required if storage is not None}
    for index, (operand, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True)):
        own = operand.storage if operand is not None else None
        if operand is not None and own is not None and storage is not None and own.format != storage.format:
            graph.set_input(op, index, insert_cast(graph, operand, Storage(storage.format)))
    graph.stage = "cast"
    PretransformWeights().run(graph, PassContext(load_target(_ANY_TARGET)))
    assert not list(violations(graph))
    return graph


def padding_mask(format: Format, shape: tuple[int, ...]) -> Array:
    """The positions of the padding elements of the physical array, as a mask."""
    return ~pack(np.ones(shape, np.bool_), format)


def _with_worst_padding(array: Array, storage: Storage | None) -> Array:
    """The array in a storage, with the worst padding elements that the padding state permits."""
    if storage is None:
        return array
    physical, where, state = pack(array, storage.format), padding_mask(storage.format, array.shape), storage.padding
    if state is Padding.ZERO or not where.any():
        return physical
    kind, numbers = physical.dtype.kind, []
    if kind == "f":
        numbers = [3.7, -3.7, 1.0] if state is Padding.FINITE else [np.nan, np.inf, -np.inf]
    elif kind in "iu":
        info = np.iinfo(physical.dtype)
        numbers = [3, 1, -3 if kind == "i" else 2] if state is Padding.FINITE else [info.max, info.min]
    else:
        numbers = [True]
    filled = physical.copy()
    filled[where] = np.resize(np.asarray(numbers, physical.dtype), int(where.sum()))
    return filled


_BLOCKS = ("4b", "8b", "16b", "4a", "4z", "4a8b", "8b8a", "2y4z", "2c", "2b", "32b")
"""Blocks behind the axes a, b, c, ..., of which z is the last one and y the one before."""


def sample_formats(shape: Shape | None, *, is_thorough: bool) -> list[Format]:
    """Formats to test: orders of axes, channels last, blocks of one axis, of two axes, two blocks of one axis."""
    if not shape:
        return []
    axes = "ABCDEFGH"[: len(shape)]
    rank, image, last = len(axes), axes[2:], axes[-1:]
    orders = [axes[::-1], f"A{image}{axes[1:2]}", f"{axes[1:]}A", f"{axes[1:2]}A{image}"]
    if is_thorough and rank <= 4:
        orders += ["".join(order) for order in permutations(axes)]
    elif rank > 2:
        orders += [f"{axes[:-2]}{axes[:-3:-1]}", f"{last}{axes[:-1]}"]
    ends = str.maketrans("yz", axes[-2:].lower().rjust(2, "?"))
    bases = (axes, *orders[1 : 4 if is_thorough else 2])
    names = [*orders, *(f"{base}{block.translate(ends)}" for base in bases for block in _BLOCKS)]
    # The innermost axis with its outer digit innermost.
    names += [f"{axes[:-1]}2{last.lower()}{last}"] if rank > 1 else []
    # Both levels of an axis away from each other, windows, digits in no order, a channel shuffle.
    names += [f"AB4b{image}2b", f"AB2a2b{image}", f"2_1b{axes[1:]}A2_2b", f"A{image}2bB"] if rank > 2 else []
    found = (name for name in names if {*name.upper(), *axes} - {*"0123456789_"} == {*axes})
    return list(dict.fromkeys(Format.parse(name, axes) for name in found))


def _independent(seeds: Mapping[Slot, list[Format]], is_thorough: bool) -> list[dict[Slot, Format]]:
    """Combinations of formats for ops whose operands have independent formats."""
    found = []
    for turn in range(400 if is_thorough else 60):
        known = {}
        for position, (slot, formats) in enumerate(seeds.items()):
            options = [None, *formats]
            chosen = options[(turn * (7 + 4 * position) + turn // 5 + position) % len(options)]
            if chosen is not None:
                known[slot] = chosen
        found.append(known)
    return found


def legal_signatures(op: Op, *, is_thorough: bool) -> list[Signature]:
    """The signatures that the rule completes from formats at one slot or at several slots."""
    rule = rule_of(op)
    assert rule is not None
    operands = {slot: value for slot in op.slots() if (value := op.operand(slot)) is not None and value.rank}
    seeds = {slot: sample_formats(value.shape, is_thorough=is_thorough) for slot, value in operands.items()}
    proposals = [{slot: format} for slot, formats in seeds.items() for format in formats]
    if rule.is_anchor or rule.has_independent_operands:
        proposals += _independent(seeds, is_thorough)
    found = [rule.signature(op, known) for known in proposals]
    return list(dict.fromkeys(each for each in found if not isinstance(each, Inapplicable)))


def fault_of(graph: Graph, feeds: tuple[Feed, ...], expected: list[list[Array]], dialect: str, load: Loader) -> str:
    """The fault of a forced graph that is written in a dialect; empty if there is none."""
    lowered = emit(lower(graph, dialect))
    check(lowered)
    runner = load(to_bytes(lowered))
    storages = {value.name: value.storage for value in (*graph.inputs, *graph.outputs)}
    for feed, outputs in zip(feeds, expected, strict=True):
        physical = {name: _with_worst_padding(array, storages[name]) for name, array in feed.items()}
        numbers = [array.astype(np.float64) for array in feed.values() if array.dtype.kind in "fiu"]
        largest = max(float(np.abs(array).max(initial=1)) for array in [*numbers, np.ones(1)])
        for value, output, actual in zip(graph.outputs, outputs, runner.run(None, physical), strict=True):
            fault = _output_fault(value, output, np.asarray(actual), largest)
            if fault:
                return f"{dialect}: {value.name} {fault}"
    return ""


def _output_fault(value: Value, expected: Array, actual: Array, largest: float) -> str:
    storage = value.storage
    if storage is None:
        return "" if compare(expected, actual).passed else "differs"
    shape = storage.format.physical_shape(expected.shape)
    if actual.shape != shape:
        return f"has the physical shape {actual.shape}, not {shape}"
    comparison = compare(expected, unpack(actual, storage.format, expected.shape))
    if not comparison.passed:
        return f"differs by {comparison.error:.2g}"
    padding = actual[padding_mask(storage.format, expected.shape)]
    if storage.padding is Padding.ZERO and padding.size and (padding != 0).any():
        return f"has {padding[padding != 0][0]} in zero padding"
    sizes = np.abs(padding.astype(np.float64)) if padding.dtype.kind == "f" else np.zeros(0)
    if storage.padding is Padding.FINITE and not (sizes <= _LARGE * largest).all():
        return f"has {sizes.max()} in finite padding"
    return ""


_FUNCTIONS = "functions", "ascend"  # one of these for each pair of a sample and a signature


class PreparedSample(Record, eq=False):
    """A sample with its graph, its results and the signatures to test.

    Attributes:
        sample: the sample.
        graph: its graph, of one op.
        expected: its results, one list per feed.
        signatures: the signatures of the op, but for the canonical one.
        load: loads models.
    """

    sample: Sample
    graph: Graph
    expected: list[list[Array]]
    signatures: list[Signature]
    load: Loader


def check_rule(*samples: Sample, load: Loader = load_in_onnxruntime) -> int:
    """Assert that the op of each sample computes the same under every signature that its layout rule completes.

    Args:
        samples: models of one op with inputs.
        load: loads the models.

    Returns:
        The number of signatures that were tried, over all samples.

    Raises:
        AssertionError: an op has no rule or no signature but the canonical one, or differs under a signature.
    """
    count = 0
    for sample in samples:
        (op,) = lifted(sample.model).ops
        assert rule_of(op) is not None, f"{sample}: there is no layout rule for {op.kind}"
        load(sample.model.SerializeToString()).run(None, sample.feeds[0])  # a model that does not run proves nothing
        prepared = prepare_sample(sample, load, is_thorough=True)
        faults = faults_of(prepared, prepared.signatures)
        assert not faults, f"{len(faults)} of {len(prepared.signatures)} signatures:\n" + "\n".join(faults[:12])
        assert prepared.signatures, f"{sample}: no signature but the canonical one can be tried"
        count += len(prepared.signatures)
    return count


def prepare_sample(sample: Sample, load: Loader, *, is_thorough: bool) -> PreparedSample:
    """A sample with its results and signatures; without signatures if it cannot be run or has no rule."""
    graph = lifted(sample.model)
    (op,) = graph.ops
    rule = rule_of(op)
    nothing = PreparedSample(sample, graph, [], [], load)
    if rule is None:
        return nothing
    try:
        runner = load(sample.model.SerializeToString())
        expected = [runner.run(None, feed) for feed in sample.feeds]
    except Exception:  # onnxruntime has no kernel, or the sizes are incompatible
        return nothing
    ranks = [value.rank for value in graph.outputs]
    if any([np.ndim(array) for array in outputs] != ranks for outputs in expected):
        return nothing  # the rank of an output depends on the values of the inputs
    plain = [each for each in legal_signatures(op, is_thorough=is_thorough) if not is_canonical(each)]
    padded = [each for signature in plain for each in with_padding_states(rule, op, signature)]
    padded.sort(key=lambda signature: zlib.crc32(f"{sample.name} {signature}".encode()))
    return PreparedSample(sample, graph, expected, padded, load)


def faults_of(prepared: PreparedSample, chosen: Iterable[Signature]) -> list[str]:
    """The faults of a sample under some signatures, in one line each."""
    return [fault for signature in chosen if (fault := _fault(prepared, signature))]


def _fault(prepared: PreparedSample, signature: Signature) -> str:
    (op,) = prepared.graph.ops
    rule = rule_of(op)
    assert rule is not None
    functions = _FUNCTIONS[zlib.crc32(f"{prepared.sample} {signature}".encode()) % len(_FUNCTIONS)]
    dialects: Sequence[str] = ["ops"] if rule.is_layout_agnostic(op, signature) else ["ops", functions]
    for dialect in dialects:
        try:
            fault = fault_of(
                forced(prepared.graph, signature), prepared.sample.feeds, prepared.expected, dialect, prepared.load
            )
        except Exception as error:
            fault = f"{dialect}: {type(error).__name__} {str(error)[:300]}"
        if fault:
            return f"{prepared.sample}: {signature}: {fault}"
    return ""
