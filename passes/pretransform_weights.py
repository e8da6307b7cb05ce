"""Pack constants ahead of time.

before: w(constant, OIHW) -> CastData(OHWI) -> Conv
after:  w(constant, OHWI) -> Conv

The elements stay in logical order in the graph; they are packed when the model is written, so no packed copy is in memory. A
constant that is read in several formats is stored in each. If the file may not grow by all of them, those with the largest
estimated gain per byte are stored, and the other CastData run with the model.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from layoutopt.cost import CostModel, sized
from layoutopt.cost.size_growth import NOTABLE, PassBudget
from layoutopt.ir.constants import stored, stored_bytes
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Data, Op, Value
from layoutopt.ops import estimated_volume
from layoutopt.ops.region_ops import expected_runs
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class PretransformWeights(Pass):
    """Store constants in the storage that their readers require."""

    name = "pretransform-weights"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Replace every cast of a constant by a constant; in training mode weights change, so all casts stay."""
        if context.mode == "training":
            return
        regions = graph.regions()
        casts = [_Cast(each, op, source) for each in regions for op in each.ops if (source := _constant_source(op))]
        holders = Counter(value.data for each in regions for value in each.values if value.data is not None)
        budget = PassBudget(context.growth, self.name, context.growth.limit - stored_bytes(regions))
        price = _Prices(sized(context.cost_model, context.sizes), expected_runs(graph))
        if _total(casts) <= budget.remaining:
            for cast in sorted(casts, key=lambda each: each.nbytes):
                growth = cast.nbytes - cast.released(holders)
                budget.take(cast.copy.name, growth, price(cast) if growth > NOTABLE else 0.0)
                _pack(cast)
            return
        prices = {cast: price(cast) for cast in casts}
        for cast in sorted(casts, key=lambda each: prices[each] / max(1, each.nbytes), reverse=True):
            if budget.request(cast.copy.name, cast.nbytes - cast.released(holders), prices[cast]):
                _pack(cast)
            else:
                context.note(self, cast.copy.name, "it is converted at run time: the file may not grow by another copy")


@dataclass(frozen=True, slots=True)
class _Cast:
    """A CastData of a constant."""

    graph: Graph
    op: Op
    source: Value

    @property
    def copy(self) -> Value:
        copy = self.op.outputs[0]
        assert copy is not None and copy.storage is not None and copy.shape is not None
        return copy

    @property
    def nbytes(self) -> int:
        """The size of the packed constant in the file."""
        storage, shape, size = self.copy.storage, self.copy.shape, sum(stored(self.source).values())
        assert storage is not None and shape is not None
        return size * estimated_volume(storage.format.physical_shape(shape)) // max(1, estimated_volume(shape))

    def released(self, holders: Counter[Data]) -> int:
        """The size of the source, if no other op reads it."""
        is_alone = self.graph.use_count(self.source) == 1 and not self.graph.is_output(self.source)
        data = self.source.data
        return sum(stored(self.source).values()) if is_alone and data is not None and holders[data] == 1 else 0


def _constant_source(op: Op) -> Value | None:
    source = op.inputs[0] if op.inputs else None
    return source if is_cast(op) and source is not None and source.is_constant else None


def _total(casts: list[_Cast]) -> int:
    return sum(cast.nbytes for cast in casts)


@dataclass(frozen=True, slots=True)
class _Prices:
    """The estimated seconds of a conversion in one run of the model.

    Attributes:
        cost_model: the cost model at the sizes of the plan.
        runs: the number of runs of each graph.
    """

    cost_model: CostModel
    runs: Mapping[Graph, float]

    def __call__(self, cast: _Cast) -> float:
        before, after = cast.source.storage, cast.copy.storage
        assert before is not None and after is not None
        return self.cost_model.conversion_seconds(cast.source, before, after) * self.runs.get(cast.graph, 1.0)


def _pack(cast: _Cast) -> None:
    """Replace a CastData by a constant."""
    graph, source, copy = cast.graph, cast.source, cast.copy
    packed = graph.new_value(copy.name, copy.type, storage=copy.storage, data=source.data, tensor=source.tensor)
    packed.axis_letters = copy.axis_letters
    graph.replace_value(copy, packed)
    if not graph.is_used(source):
        graph.remove_value(source)
