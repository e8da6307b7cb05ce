"""Compute what depends on constants alone.

before: shape(constant) -> ConstantOfShape -> w -> Conv
after:  w(constant) -> Conv

What is computed in bodies is folded too, constants that they capture become their own, and a body that certainly runs once
takes the place of its op.

Large results are folded only for those who gain: a constant that grows the file by more than `growth` bytes is left as it is,
unless a reader could have it in a format of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, DType, Op, TensorType, Value
from layoutopt.ops import elements, rule_of
from layoutopt.ops.bodies import control_flow, unwrap
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
    is_whole = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Until nothing is left: constants say what shapes are and which bodies run, and shapes are constants."""
        if context.mode == "training":
            return
        for _ in range(_ROUNDS):
            found = False
            graphs = [graph]
            for each in graphs:  # it grows by the bodies of every graph
                found |= self._unwrap(each) | self._fold_shapes(each) | self._fold(each, context) | self._sink(each)
                graphs += (body for op in each.ops if control_flow(op) is not None for body in op.bodies.values())
            if not found:
                break
            if any(_is_unknown(value) for each in graphs for value in each.values):
                context.infer(graph)

    def _unwrap(self, graph: Graph) -> bool:
        """Put bodies that certainly run once in the place of their ops. Returns whether there were some."""
        found = False
        while certain := [
            (op, name) for op in graph.ops if (rule := control_flow(op)) and (name := rule.certain_body(op))
        ]:
            for op, name in certain:
                unwrap(graph, op, name)
            found = True
        return found

    def _sink(self, graph: Graph) -> bool:
        """Let bodies have constants that they capture as their own, sharing the elements. Returns whether there were some."""
        found = False
        for op in graph.ops:
            captured = range(op.own_inputs, len(op.inputs)) if control_flow(op) is not None else ()
            constants = [
                (index, value) for index in captured if (value := op.inputs[index]) is not None and value.is_constant
            ]
            for index, value in constants:
                for body in op.bodies.values():
                    _own(body, body.inputs[index - len(op.inputs)], value)
            for index, _ in reversed(constants):
                graph.release(op, index)
            found |= bool(constants)
        return found

    def _fold_shapes(self, graph: Graph) -> bool:
        """Replace what follows from the types of the operands alone. Returns whether there was something."""
        found = False
        for op in graph.ops:
            rule = rule_of(op)
            result = rule.known_result(op) if rule is not None else None
            folded: dict[str, Value] = {}
            for value in op.outputs:
                array = result if result is not None or value is None else value.known
                if array is None or value is None or not graph.uses(value) or graph.is_output(value):
                    continue
                type = TensorType(DType.of(array), array.shape)
                constant = graph.new_value(f"{value.name}__folded", type, data=ArrayData(array), tensor=value.tensor)
                graph.replace_uses(value, constant)
                folded[value.name] = constant
            if folded:
                # With what measured a shape for it alone, which to other passes would be a reader.
                graph.remove_unread(op)
                _take_names(graph, folded)
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
        _take_names(graph, folded)
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


def _take_names(graph: Graph, folded: Mapping[str, Value]) -> None:
    """Give constants the names of what they stand for, where these are free."""
    for name, constant in folded.items():
        if graph.find(name) is None:
            graph.rename(constant, name)


def _own(body: Graph, formal: Value, value: Value) -> None:
    """Let a body read a constant of its own in the place of what stands for an outer one."""
    if not body.uses(formal) and not body.is_output(formal):
        return
    name = formal.name
    body.rename(formal, body.fresh_name(f"{name}__captured"))
    constant = body.new_value(name, value.type, data=value.data, tensor=formal.tensor)
    body.replace_uses(formal, constant)
    for index, output in enumerate(body.outputs):
        if output is formal:
            body.set_output(index, constant)


def _is_unknown(value: Value) -> bool:
    """Whether something about a tensor's shape is not known, not even by a name of the model."""
    if not isinstance(value.type, TensorType):
        return False
    return value.shape is None or any(isinstance(dim, str) and dim.startswith("?") for dim in value.shape)
