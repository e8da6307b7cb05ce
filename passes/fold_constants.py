"""Compute what depends on constants alone.

before: shape(constant) -> ConstantOfShape -> w -> Conv
after:  w(constant) -> Conv

Large results are folded only for those who gain: a constant that grows the file by more than `growth` bytes is left as it is,
unless a reader could have it in a format of its own.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, DType, Op, TensorType, Value
from layoutopt.ops import elements, rule_of
from layoutopt.pass_base import Pass, PassContext

_ROUNDS = 16  # exporters nest shape computations a few deep


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
        """Until nothing is left: constants say what shapes are, and shapes are constants."""
        if context.mode == "training":
            return
        for _ in range(_ROUNDS):
            if not (self._fold_shapes(graph) | self._fold(graph, context)):
                break
            if not any(_is_unknown(value) for value in graph.values):
                break
            context.infer(graph)

    def _fold_shapes(self, graph: Graph) -> bool:
        """Replace what follows from the types of the operands alone. Returns whether there was something."""
        found = False
        for op in graph.ops:
            rule, value = rule_of(op), op.outputs[0] if op.outputs else None
            array = rule.known_result(op) if rule is not None else None
            if array is None or value is None or not graph.uses(value) or graph.is_output(value):
                continue
            if any(use.is_capture for use in graph.uses(value)):
                continue
            type = TensorType(DType.of(array), array.shape)
            constant = graph.new_value(f"{value.name}__folded", type, data=ArrayData(array), tensor=value.tensor)
            graph.replace_uses(value, constant)
            name = value.name
            graph.remove_op(op)
            graph.rename(constant, name)
            found = True
        return found

    def _fold(self, graph: Graph, context: PassContext) -> bool:
        """Compute, all at once, the results that something else reads. Returns whether there were some."""
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
            type = TensorType(DType.of(array), array.shape) if _is_unknown(value) else value.type
            constant = graph.new_value(f"{value.name}__folded", type, data=ArrayData(array), tensor=value.tensor)
            graph.replace_uses(value, constant)
            folded[value.name] = constant
        for op in reversed(foldable):
            outputs = [value for value in op.outputs if value is not None]
            if not any(graph.uses(value) or graph.is_output(value) for value in outputs):
                graph.remove_op(op)
        for name, constant in folded.items():
            if graph.find(name) is None:
                graph.rename(constant, name)
        return bool(folded)

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


def _is_unknown(value: Value) -> bool:
    """Whether something about a tensor's shape is not known, not even by a name of the model."""
    if not isinstance(value.type, TensorType):
        return False
    return value.shape is None or any(isinstance(dim, str) and dim.startswith("?") for dim in value.shape)
