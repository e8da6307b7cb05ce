"""Compute what depends on constants alone.

before: shape(constant) -> ConstantOfShape -> w -> Conv
after:  w(constant) -> Conv

Large results are folded only for those who gain: a constant that grows the file by more than `growth` bytes is left as it is,
unless a reader could have it in a format of its own.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, Op, TensorType, Value
from layoutopt.ops import elements, rule_of
from layoutopt.pass_base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    """Replace ops on constants by their results.

    Attributes:
        growth: bytes by which one folded op may grow the model.
    """

    growth: int = 1 << 20

    name = "fold-constants"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """All at once: the results that something else reads are evaluated in one run."""
        if context.mode == "training":
            return
        foldable = self._foldable(graph, context)
        wanted = [
            value
            for op in foldable
            for value in op.outputs
            if value is not None and not graph.is_output(value) and self._is_read(graph, value, foldable)
        ]
        wanted = [value for value in wanted if not any(use.is_capture for use in graph.uses(value))]
        folded: dict[str, Value] = {}
        for value, array in zip(wanted, context.evaluate(graph, wanted), strict=True):
            if array is None:
                context.note(self, value.name, "it could not be computed ahead of time")
                continue
            constant = graph.new_value(f"{value.name}__folded", value.type, data=ArrayData(array), tensor=value.tensor)
            graph.replace_uses(value, constant)
            folded[value.name] = constant
        for op in reversed(foldable):
            outputs = [value for value in op.outputs if value is not None]
            if not any(graph.uses(value) or graph.is_output(value) for value in outputs):
                graph.remove_op(op)
        for name, constant in folded.items():
            if graph.find(name) is None:
                graph.rename(constant, name)

    def _foldable(self, graph: Graph, context: PassContext) -> dict[Op, None]:
        foldable: dict[Op, None] = {}
        computed: set[Value] = set()
        for op in graph.ops:
            inputs = [value for value in op.inputs if value is not None]
            if not all(value.is_constant or value in computed for value in inputs) or not context.is_foldable(op):
                continue
            outputs = [value for value in op.outputs if value is not None]
            if all(self._is_worth_it(graph, value, inputs) for value in outputs):
                foldable[op] = None
                computed.update(outputs)
        return foldable

    def _is_worth_it(self, graph: Graph, value: Value, inputs: list[Value]) -> bool:
        if value.static_shape is None or not isinstance(value.type, TensorType):
            return False
        size = elements(value.static_shape) * value.type.dtype.bits // 8
        source = sum(each.data.nbytes for each in inputs if each.data is not None)
        wanted = any((rule := rule_of(use.op)) is not None and rule.is_anchor for use in graph.uses(value))
        return size <= source + self.growth or wanted

    def _is_read(self, graph: Graph, value: Value, foldable: dict[Op, None]) -> bool:
        return any(use.op not in foldable for use in graph.uses(value))
