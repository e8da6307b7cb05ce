"""Prices of element-wise ops that a runtime computes in the kernel before them, as its epilogue.

Conv -> Mul(scale) -> Sigmoid        one kernel, if nothing else reads the results in between
MatMul -> Add(bias) -> Add(residual)  one kernel, which reads the residual too
Conv -> Transpose -> Relu             the same as Conv -> Relu -> Transpose, since an element-wise op commutes with view ops
"""

from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import Field

from layoutopt.cost import Epilogues
from layoutopt.cost_models.spec import Families, SpecModel, Text, Texts
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.region_ops import regions_with_rule

_ELEMENTWISE = "elementwise"


class EpilogueRule(SpecModel):
    """Element-wise ops that the runtime computes in the kernel before them.

    Attributes:
        family: the families of the kernels.
        ops: op types; by default all element-wise ops.
        with_constants: whether the other operands have to be constants.
        source: the measurement or document that proves it.
    """

    family: Annotated[Families, Field(min_length=1)]
    ops: Texts | None = None
    with_constants: bool = False
    source: Text

    def accepts(self, op: Op) -> bool:
        """Whether the runtime computes the op in a kernel of these families."""
        rule = rule_of(op)
        if rule is None or rule.family != _ELEMENTWISE or len(op.outputs) != 1:
            return False
        others = sum(not each.is_constant for each in op.present_inputs) - 1
        return (self.ops is None or op.kind in self.ops) and not (self.with_constants and others)


def find_epilogues(graph: Graph, rules: Sequence[EpilogueRule]) -> Epilogues:
    """The ops that become part of the kernel before them, in the graph and its bodies.

    An epilogue is the longest chain of ops on the elements of one value, with view ops in between, of which nothing but the
    last result is read elsewhere.

    Args:
        graph: the graph, not planned yet.
        rules: the ops that the runtime fuses.
    """
    found: dict[Op, float] = {}
    for each in regions_with_rule(graph) if rules else ():
        for op in each.ops:
            layout_rule = rule_of(op)
            matching_rules = [rule for rule in rules if layout_rule is not None and layout_rule.family in rule.family]
            if matching_rules and op not in found and op.outputs[0] is not None and op.outputs[0].shape is not None:
                found |= _epilogue(each, op.outputs[0], matching_rules, found)
    return found


def _epilogue(
    graph: Graph, result: Value, rules: Sequence[EpilogueRule], other_epilogues: Epilogues
) -> dict[Op, float]:
    """The ops of the epilogue of the kernel that computes `result`, with the remaining fractions of their times."""
    members: set[Op] = set()
    fractions: dict[Op, float] = {}
    found: dict[Op, float] = {}
    kernel_values, last = {result}, result
    pending: set[Op] = set()

    def accepts(op: Op) -> bool:
        y = op.outputs[0] if op.outputs else None
        if op in other_epilogues or y is None:
            return False
        if isinstance(rule_of(op), View):
            return op.inputs[0] in kernel_values
        keeps_shape = all(each not in kernel_values or each.shape == y.shape for each in op.present_inputs)
        return keeps_shape and any(rule.accepts(op) for rule in rules)

    while not graph.is_output(last):
        readers = {use.op for use in graph.uses(last)}
        if not all(map(accepts, readers)):
            break  # `last` is written, so nothing behind it is part of the kernel
        pending |= readers - members
        if not pending:
            break
        op = min(pending, key=lambda each: each.order)
        pending.remove(op)
        members.add(op)
        if not isinstance(rule_of(op), View):
            fractions[op] = _remaining_fraction(op, kernel_values)
        last = op.outputs[0]  # type: ignore[assignment]  # accepted ops have a result
        kernel_values.add(last)
        if all(use.op in members for value in kernel_values - {last} for use in graph.uses(value)):
            found = dict(fractions)
    return found


def _remaining_fraction(op: Op, kernel_values: Collection[Value]) -> float:
    """The share of operands that are read from memory in all operands with the shape of the result and the result.

    Args:
        op: an op of an epilogue.
        kernel_values: the values that the kernel with the epilogue computes before the op.
    """
    y = op.outputs[0]
    assert y is not None
    full_shape = [each for each in op.present_inputs if each.shape == y.shape]
    return sum(each not in kernel_values for each in full_shape) / (len(full_shape) + 1)
