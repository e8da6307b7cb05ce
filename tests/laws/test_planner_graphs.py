"""Laws of planning on graphs, with and without bodies: the plan is the cheapest, and the built graph has its price.

The graphs are small and random: convolutions, broadcasting, concatenation, reductions, matrix products, view ops, values that
are shared or graph outputs, channel counts that require padding. So are the prices.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import control_flow_models
import numpy as np
import onnx_ir
import pytest
from msgspec.structs import replace
from tiers import tiered

from layoutopt import inference, onnx_io
from layoutopt.cost import CostModel, Prices
from layoutopt.cost_models.registry import host_target
from layoutopt.dialects import DIALECTS, Dialect
from layoutopt.errors import PinError
from layoutopt.formats import Format, pack, unpack
from layoutopt.ir import DType, Graph, Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import Array, ArrayData, Attribute, Padding
from layoutopt.ops import OperandFormats, View, canonical_storage, rule_of
from layoutopt.ops.region_ops import boundary, expected_runs
from layoutopt.passes import DEFAULT_PIPELINE, TRAINING_PIPELINE, AssignFormats
from layoutopt.passes.base import Mode, PassContext, Pipeline
from layoutopt.planner import CandidateMemo, Plan, PlanRequest, RegionTree, make_plan, propose
from layoutopt.planner.propagation import enforce_pins
from layoutopt.record import Record
from layoutopt.runtime.session import Session
from layoutopt.testing.rules import lower
from layoutopt.verification import verify_models

BLOCKS = 10
GRAPHS_PER_BLOCK = 110
MOST_COMBINATIONS = 60_000
FORMATS = {
    2: ["NM", "NM16m8n", "MN16m8n"],
    3: ["ACB", "BAC", "ABC8b"],
    4: ["NHWC", "NCHW8c", "NCHW16c", "CHWN", "NHWC8c"],
    5: ["ABDEC", "ABCDE8c", "CDEAB"],
}


class RandomCosts(Record):
    """A target with random prices; only conversions that move no bytes are free."""

    seed: int
    name: str = "random"
    dialect: str = "ops"
    kinds: tuple[str, ...] = ("Conv", "MatMul")  # op types with preferred formats; all if empty
    fewest: int = 1

    def _random(self, *key: object) -> random.Random:
        return random.Random(f"{self.seed} {key}")

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        rng, preferred = self._random("kernels", op.name, op.kind), []
        for _ in range(rng.randint(self.fewest, 2) if not self.kinds or op.op_type in self.kinds else 0):
            formats = {}
            for slot, chance in ((Slot("in", 0), 1.0), (Slot("out", 0), 0.4)):
                values = op.inputs if slot.side == "in" else op.outputs
                value = values[0] if values else None
                if value is not None and value.rank in FORMATS and value.shape is not None and rng.random() < chance:
                    format = Format.parse(rng.choice(FORMATS[value.rank or 0]))
                    formats |= {slot: format} if format.fits(value.shape) else {}
            preferred += [formats] if formats else []
        return preferred

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        rule = rule_of(op)
        if isinstance(rule, View):
            return 0.0
        return self._random(op.name, str(signature)).random()

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        keys = sorted(str(storage.format.key(value.shape)) for storage in (src, dst))
        if keys[0] == keys[1] and src.padding <= dst.padding:
            return 0.0
        return 0.6 * self._random(value.tensor, keys).random()


class Generator:
    """Builds one random graph."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph("random", {"": 18})
        self.batch = self.rng.choice([1, 2])
        self.extents = self.rng.choice([(1, 1), (2, 3), (4, 4)])
        for index in range(self.rng.randint(1, 2)):
            value = self._value(f"x{index}", (self.batch, self._channels(), *self.extents))
            self.graph.inputs.append(value)

    def build(self) -> Graph:
        makers = [self.conv, self.unary, self.binary, self.broadcast, self.concat, self.rename, self.reduce]
        makers += [self.conv, self.unary, self.binary, self.rename, self.matmul, self.unknown]
        for _ in range(self.rng.randint(2, 6)):
            self.rng.choice(makers)()
        unread = [value for value in self._computed() if not self.graph.uses(value)]
        also = [value for value in self._computed() if self.graph.uses(value) and self.rng.random() < 0.15]
        self.graph.outputs.extend(unread + also)
        if self.rng.random() < 0.05 and self.graph.outputs:
            self.graph.outputs.append(self.graph.outputs[0])
        return self.graph

    def conv(self) -> None:
        x = self._pick(4)
        channels, kernel = self._channels(), self.rng.choice([1, 3])
        shape = (*x[:1], channels, *x[2:])
        w = self._constant((channels, x[1], kernel, kernel))
        self._op("Conv", (self.picked, w), shape, {"kernel_shape": (kernel,) * 2, "pads": (kernel // 2,) * 4})

    def unary(self) -> None:
        shape = self._pick()
        self._op(self.rng.choice(["Relu", "Sigmoid", "Exp", "Log", "Neg"]), (self.picked,), shape)

    def binary(self) -> None:
        shape = self._pick()
        a = self.picked
        same = [value for value in self._readable() if value.shape == shape]
        self._op(self.rng.choice(["Add", "Mul", "Div", "Max"]), (a, self.rng.choice(same)), shape)

    def broadcast(self) -> None:
        shape = self._pick()
        start = self.rng.randint(0, len(shape) - 1)
        small = tuple(dim if self.rng.random() < 0.6 else 1 for dim in shape)[start:]
        fitting = [value for value in self._readable() if value.shape == small]
        other = self.rng.choice(fitting) if fitting else self._constant(small)
        pair = (self.picked, other) if self.rng.random() < 0.7 else (other, self.picked)
        self._op(self.rng.choice(["Add", "Mul", "Div"]), pair, shape)

    def concat(self) -> None:
        shape = self._pick()
        axis = self.rng.randrange(len(shape))
        others = [
            value
            for value in self._readable()
            if value.static_shape is not None
            and value.rank == len(shape)
            and all(value.static_shape[at] == shape[at] for at in range(len(shape)) if at != axis)
        ]
        other = self.rng.choice(others)
        joint = (*shape[:axis], shape[axis] + other.static_shape[axis], *shape[axis + 1 :])
        self._op("Concat", (self.picked, other), joint, {"axis": axis})

    def rename(self) -> None:
        shape = self._pick()
        if self.rng.random() < 0.6:
            perm = self.rng.sample(range(len(shape)), len(shape))
            self._op("Transpose", (self.picked,), tuple(shape[axis] for axis in perm), {"perm": tuple(perm)})
            return
        place = self.rng.randrange(len(shape) - 1) if len(shape) > 2 else 0
        merged = (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
        split = (*shape[:place], 1, *shape[place:])
        target = merged if len(shape) > 2 else split
        self._op("Reshape", (self.picked, self._numbers(target)), target)

    def reduce(self) -> None:
        shape = self._pick(4)
        if self.rng.random() < 0.5:
            self._op("GlobalAveragePool", (self.picked,), (*shape[:2], 1, 1))
        else:
            self._op("Softmax", (self.picked,), shape, {"axis": 1})

    def matmul(self) -> None:
        shape = self._pick(2)
        n = self.rng.choice([5, 8])
        self._op("MatMul", (self.picked, self._constant((shape[1], n))), (shape[0], n))

    def unknown(self) -> None:
        shape = self._pick()
        other = (self.rng.choice(self._readable()),) if self.rng.random() < 0.5 else ()
        self._op("Mystery", (self.picked, *other), shape, domain="elsewhere")

    def _op(
        self,
        kind: str,
        inputs: tuple[Value, ...],
        shape: tuple[int, ...],
        attributes: dict[str, Attribute] | None = None,
        domain: str = "",
    ) -> None:
        if prod(shape) > 4000:
            return
        name = f"v{len(self.graph)}"
        op = Op(kind, inputs, (self._value(name, shape),), name=f"{kind}_{name}", domain=domain)
        op.version, op.attributes = (1 if domain else 18), attributes or {}
        self.graph.add_op(op)

    def _pick(self, rank: int | None = None) -> tuple[int, ...]:
        """Choose a value to read, the latest more likely; its shape."""
        values = [value for value in self._readable() if rank is None or value.rank == rank]
        if not values:
            shape = (6, 8) if rank == 2 else (self.batch, self._channels(), *self.extents)
            values = [self._value(f"x{len(self.graph.values)}", shape)]
            self.graph.inputs.append(values[0])
        self.picked = self.rng.choice([*values, *values[-2:], *values[-1:]])
        return self.picked.static_shape

    def _readable(self) -> list[Value]:
        return [value for value in self.graph.values if not value.is_constant]

    def _computed(self) -> list[Value]:
        return [value for value in self.graph.values if self.graph.producer(value) is not None]

    def _channels(self) -> int:
        return self.rng.choice([3, 8, 16, 17])

    def _value(self, name: str, shape: tuple[int, ...]) -> Value:
        return self.graph.add_value(Value(name, TensorType(DType.FLOAT32, shape)))

    def _constant(self, shape: tuple[int, ...]) -> Value:
        return self.graph.new_value("w", TensorType(DType.FLOAT32, shape), data=ArrayData(np.ones(shape, np.float32)))

    def _numbers(self, numbers: tuple[int, ...]) -> Value:
        array = np.asarray(numbers, dtype=np.int64)
        return self.graph.new_value("shape", TensorType(DType.INT64, array.shape), data=ArrayData(array))


def random_pins(graph: Graph, seed: int) -> dict[Value, Format]:
    """Formats for some of the inputs and outputs, now and then for a value in between."""
    rng = random.Random(f"pins {seed}")
    if rng.random() < 0.6:
        return {}
    values = [value for value in (*graph.inputs, *graph.outputs) if value.rank in FORMATS]
    values += [
        value for value in graph.values if not value.is_constant and value.rank in FORMATS and rng.random() < 0.1
    ]
    return {value: Format.parse(rng.choice(FORMATS[value.rank or 0])) for value in values if rng.random() < 0.5}


def cheapest(
    tree: RegionTree,
    model: CostModel,
    signatures: Mapping[Op, Sequence[Signature]],
    pins: Mapping[Value, Format],
    mode: Mode = "inference",
    host: str = "",
) -> float:
    """The price of the cheapest combination by definition, from an array of all combinations with one axis per choice.

    Ops and distinct casts are weighted by the expected number of runs of their graph.
    """
    axes = [op for op, options in signatures.items() if len(options) > 1]

    def along(array: Array, op: Op | None, other: Op | None = None) -> Array:
        """An array over the signatures of one or two ops, reshaped to broadcast over all combinations."""
        if op in axes and other in axes and axes.index(op) > axes.index(other):
            array = array.T
        return array.reshape([len(signatures[each]) if each is op or each is other else 1 for each in axes])

    total = np.zeros([1] * len(axes))
    for op, options in signatures.items():
        if boundary(op) is None:
            prices = [model.kernel_seconds(op, each) * tree.weight(op) for each in options]
            total = total + along(np.asarray(prices), op)
    for value in tree.values:
        if value.shape is None or (value.is_constant and mode == "inference" and not tree.is_output(value)):
            continue
        pinned = Storage(pins[value]) if value in pins else canonical_storage(value)
        pinned = pinned if value.is_constant else pinned.placed(host)
        producer, place = tree.writers.get(value, (None, 0))
        given = [pinned] if producer is None else [each.outputs[place] for each in signatures[producer]]
        readers: list[tuple[Op | None, list[Storage | None]]] = [(None, [pinned])] if tree.is_output(value) else []
        uses = tree.readers.get(value, ())
        readers += [(reader, [each.inputs[index] for each in signatures[reader]]) for reader, index in uses]
        wanted = [(source, target) for _, required in readers for target in required for source in given]
        copies = {key: target for source, target in wanted if target and (key := copy_key(value, source, target))}
        for key, target in copies.items():
            due = np.zeros([1] * len(axes), dtype=bool)
            for reader, required in readers:
                grid = np.asarray([[copy_key(value, source, each) == key for each in required] for source in given])
                is_own = producer is not None and reader is producer
                due = due | (along(np.diag(grid), reader) if is_own else along(grid, producer, reader))
            copy = Storage(target.format, key[-1], target.device)
            prices = [model.conversion_seconds(value, source, copy) for source in given if source]
            total = total + tree.weight(value) * due * along(np.asarray(prices), producer)
    return float(total.min())


def copy_key(value: Value, has: Storage | None, want: Storage | None) -> tuple[object, ...] | None:
    """The bytes, the device and the padding of the copy that a reader needs; None if it needs none."""
    if want is None or has is None:
        return None
    is_same = has.format.key(value.shape) == want.format.key(value.shape) and has.padding <= want.padding
    if is_same and want.device in ("", has.device or want.device):
        return None
    return want.format.key(value.shape), want.device, has.padding if is_same else Padding.ZERO


def built(graph: Graph, model: CostModel, mode: Mode = "inference") -> float:
    """The price of a planned graph: its kernels, its casts, and its view ops that move bytes, as often as they run."""
    total = 0.0
    for each, runs in expected_runs(graph).items():
        for op in each.ops:
            x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
            if is_cast(op):
                is_free = x.is_constant and mode == "inference"
                total += 0.0 if is_free else runs * model.conversion_seconds(x, x.storage, y.storage)
                continue
            total += 0.0 if boundary(op) is not None else runs * model.kernel_seconds(op, op.signature)
            rule, source, target = rule_of(op), op.signature.inputs[:1], op.signature.outputs[0]
            if isinstance(rule, View) and source[0] is not None and target is not None and y is not None:
                same = rule.output_format(op, source[0].format)
                total += runs * model.conversion_seconds(y, Storage(same, source[0].padding), target)
    return total


def plan_of(seed: int, mode: Mode) -> tuple[Graph, RandomCosts, dict[Value, Format], Plan] | None:
    """A random graph with its plan; None if there are too many combinations or no plan meets the pins."""
    graph, model = Generator(seed).build(), RandomCosts(seed)
    pins = random_pins(graph, seed)
    try:
        plan = make_plan(PlanRequest(graph, model, pins, mode == "inference"))
    except PinError:
        return None
    return graph, model, pins, plan


def candidates_of(
    tree: RegionTree, model: CostModel, pins: dict[Value, Format], most: int = MOST_COMBINATIONS
) -> Mapping[Op, Sequence[Signature]] | None:
    """The signatures to choose from; None if there are too many combinations."""
    candidates = propose(tree, model, pins)
    enforce_pins(candidates, pins)
    return candidates.signatures if prod(map(len, candidates.signatures.values())) <= most else None


def mode_of(seed: int) -> Mode:
    return "training" if seed % 5 == 0 else "inference"


def passes_of(mode: Mode, *, whole: bool = False) -> Pipeline:
    """The passes from planning on, so that the planned graph is the priced one; or also the simplifications before it."""
    passes = (TRAINING_PIPELINE if mode == "training" else DEFAULT_PIPELINE).passes
    first = next(place for place, step in enumerate(passes) if isinstance(step, AssignFormats))
    return Pipeline(passes if whole else passes[first:])


@pytest.mark.parametrize("block", tiered(range(BLOCKS), 1))
def test_the_plan_is_the_cheapest_combination_of_signatures_and_the_passes_build_it(block: int) -> None:
    compared = padded = 0
    for seed in range(block * GRAPHS_PER_BLOCK, (block + 1) * GRAPHS_PER_BLOCK):
        mode = mode_of(seed)
        case = plan_of(seed, mode)
        if case is None:
            continue
        graph, model, pins, plan = case
        tree = RegionTree(graph)
        signatures = candidates_of(tree, model, pins)
        if signatures is not None:
            compared += 1
            padded += any(
                each is not None and each.padding for group in signatures.values() for each in group[-1].outputs
            )
            assert plan.seconds == pytest.approx(cheapest(tree, model, signatures, pins, mode), rel=1e-6), seed
        assert plan.optimal, seed
        assert plan.gap == 0, seed
        context = PassContext(model, mode, {value.name: format for value, format in pins.items()})
        passes_of(mode).run(graph, context)
        assert context.plan.seconds == plan.seconds, seed
        assert built(graph, model, mode) == pytest.approx(plan.seconds, rel=1e-9), seed
    assert compared >= GRAPHS_PER_BLOCK * 0.8
    assert padded > 5


HOST_BLOCK = {"cpu-avx2": 8, "cpu-avx512": 16}.get(host_target())


@pytest.mark.parametrize("seed", tiered([689, *range(150)], 25))
def test_planned_graphs_compute_what_they_did(seed: int) -> None:
    """In every dialect the result is equivalent, although logarithms and quotients write garbage into padding."""
    graph, mode = Generator(seed).build(), mode_of(seed)
    if any(op.domain for op in graph.ops):
        return
    rng = np.random.default_rng(seed)
    for value in graph.values:
        if value.static_shape is not None and value.data is not None and value.dtype is DType.FLOAT32:
            weights = rng.uniform(0.5, 1.5, value.static_shape) / (value.static_shape or (1,))[-1]
            value.data = ArrayData(weights.astype(np.float32))
    feed = {value.name: rng.uniform(0.5, 1.5, value.static_shape).astype(np.float32) for value in graph.inputs}
    outputs = [(value.name, value.static_shape or ()) for value in graph.outputs]
    want = _run(graph, feed)
    pins = {value.name: format for value, format in random_pins(graph, seed).items()}
    try:
        passes_of(mode).run(graph, PassContext(RandomCosts(seed), mode, pins))
    except PinError:
        return
    packed = {name: pack(array, pins[name]) if name in pins else array for name, array in feed.items()}
    for dialect in DIALECTS:
        if DIALECTS[dialect].block(graph) not in (0, HOST_BLOCK):
            continue  # kernels have the machine's block
        got = _run(lower(graph, dialect), packed)
        for (name, shape), expected, result in zip(outputs, want, got, strict=True):
            logical = unpack(result, pins[name], shape) if name in pins else result
            np.testing.assert_allclose(logical, expected, rtol=2e-3, atol=1e-5, err_msg=name)


def _run(graph: Graph, feed: dict[str, Array]) -> list[Array]:
    return Session(onnx_io.to_bytes(onnx_io.emit(graph))).run(None, feed)


class ScaledConversions(Prices):
    """A cost model whose conversions cost a multiple of their price."""

    def __init__(self, model: CostModel, factor: float) -> None:
        super().__init__(model)
        self._factor = factor

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        return self._factor * self.model.conversion_seconds(value, src, dst)


def test_candidates_that_were_collected_at_other_prices_give_the_same_plan() -> None:
    """With kernels and conversions at half and at twice their prices, so that most plans differ."""
    reused = different = 0
    for seed in range(20):
        case = plan_of(seed, mode_of(seed))
        if case is None:
            continue
        graph, model, pins, plan = case
        memo = CandidateMemo()
        request = PlanRequest(graph, model, pins, free_constants=mode_of(seed) == "inference", memo=memo)
        assert make_plan(request).signatures == plan.signatures, seed
        reused += memo.found is not None
        for factor in (0.5, 2.0):
            again = replace(request, cost_model=ScaledConversions(model, factor))
            expected = make_plan(replace(again, memo=None))
            assert make_plan(again) == expected, seed
            different += expected.signatures != plan.signatures
    assert reused > 10
    assert different > 5


# --- across boundaries of bodies -------------------------------------------------------------------------

NAMES = tuple(control_flow_models.MODELS)
MOST_OF_BODIES = 2_000


def costs(seed: int) -> RandomCosts:
    """Random prices and preferred formats for all ops."""
    return RandomCosts(seed, kinds=(), fewest=0)


def lifted(name: str) -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(control_flow_models.load(name)))


def run_passes(graph: Graph, seed: int, mode: Mode, *, whole: bool) -> PassContext:
    context = PassContext(costs(seed), mode)
    passes_of(mode, whole=whole).run(graph, context)
    return context


def faults(name: str, seeds: Sequence[int], dialects: Sequence[Dialect]) -> Iterator[str]:
    """The faults of a model under random prices."""
    model = control_flow_models.load(name)
    for seed in seeds:
        graph = lifted(name)
        run_passes(graph, seed, mode_of(seed), whole=True)
        for dialect in dialects:
            if dialect.block(graph) not in (0, HOST_BLOCK):
                continue
            emitted = onnx_io.emit(lower(graph, dialect.name))
            onnx_io.check(emitted)
            verdict = verify_models(model.SerializeToString(), onnx_io.to_bytes(emitted))
            if verdict.status != "passed":
                yield f"{name}, seed {seed}, {dialect.name}: {verdict.reason}"


@pytest.mark.parametrize(("seeds", "name"), [*product([None], NAMES), *tiered(product([60], NAMES), 0)])
def test_any_formats_may_cross(seeds: int | None, name: str) -> None:
    """In the quick tier every model in one of the dialects, each dialect with several models."""
    number, dialects = NAMES.index(name), [*DIALECTS.values()]
    if seeds is None:
        assert not list(faults(name, [number], [dialects[number % len(dialects)]]))
    else:
        assert not list(faults(name, range(seeds), dialects))


@pytest.mark.parametrize("name", NAMES)
def test_the_passes_build_what_was_priced(name: str) -> None:
    graph, seed = lifted(name), 1 + NAMES.index(name)
    context = run_passes(graph, seed, "inference", whole=False)
    assert built(graph, costs(seed)) == pytest.approx(context.plan.seconds, rel=2e-3)


@pytest.mark.parametrize(("least", "name"), [*product([1], NAMES), *tiered(product([9], NAMES), 0)])
def test_a_plan_is_the_cheapest(least: int, name: str) -> None:
    """The plan has the lowest price of all combinations of candidates, computed by definition."""
    proven = 0
    for seed in range(1, 30):
        graph, model = lifted(name), costs(seed)
        tree = RegionTree(graph)
        candidates = candidates_of(tree, model, {}, MOST_OF_BODIES)
        if candidates is None or all(len(each) == 1 for each in candidates.values()):
            continue
        best = cheapest(tree, model, candidates, {})
        plan = make_plan(PlanRequest(graph, model))
        assert plan.seconds == pytest.approx(best, rel=1e-6), seed
        assert plan.lower_bound == pytest.approx(best, rel=1e-6), seed
        proven += 1
        if proven == least:
            return
    assert proven or name == "nested"  # which has more combinations
