"""Passes that simplify the graph before planning: constants, copies, unused ops, and fusion patterns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layoutopt.cost.size_growth import NOTABLE, PassBudget
from layoutopt.formats import is_unknown
from layoutopt.inference import evaluate_extents, infer_again
from layoutopt.ir.constants import share_constants
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, Data, DType, Op, OpaqueType, TensorType, Value
from layoutopt.ops import canonical_signature, estimated_volume, is_copy, is_type_conversion, rule_of, rules
from layoutopt.ops.region_ops import boundary, inline_region, unconditional_region
from layoutopt.passes.base import Pass, PassContext
from layoutopt.patterns import FusionPattern, Match, patterns_at, reformulation
from layoutopt.runtime.evaluate import defer, evaluate, is_foldable


class ShareConstants(Pass):
    """Merge constants of more than 1 KiB that have the same type, shape and content.

    before: w1 -> Conv, w2 -> Conv        where w1 and w2 have the same type, shape and bytes
    after:  w1 -> Conv, Conv

    Within a graph they become one value. Constants of several graphs get the same data object, and the emitter writes that
    once.
    """

    name = "share-constants"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Merge in the graph and its bodies; weights that are trained stay separate parameters."""
        if context.mode == "inference":
            share_constants(graph)


class RemoveIdentities(Pass):
    """Remove Identity ops and Casts to the same type; those that give an output or a pinned value its name stay.

    before: Conv -> Identity -> Relu
    after:  Conv -> Relu
    """

    name = "remove-identities"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Replace the result of every copy by its operand."""
        for op in graph.ops:
            is_plain = is_copy(op) and len(op.inputs) == len(op.outputs) == 1
            if is_plain and not graph.is_output(op.y) and op.y.name not in context.pins:
                graph.bypass(op)


class RemoveDead(Pass):
    """Remove ops and constants that no output depends on.

    before: x -> Relu -> y, where y is neither read nor an output
    after:  (nothing)

    A captured value that a body does not read is no longer captured, so that its producer may be removed.
    """

    name = "remove-dead"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Remove ops in reverse topological order, so that a dead chain is removed in one traversal; then constants."""
        for op in reversed(graph.ops):
            outputs = op.present_outputs
            if not any(graph.is_used(value) for value in outputs):
                graph.remove_op(op)
            elif op.captured:
                self._release(graph, op)
        for value in graph.values:
            if value.is_constant and not graph.is_used(value):
                graph.remove_value(value)

    def _release(self, graph: Graph, op: Op) -> None:
        """Remove the captured values that no body of an op reads."""
        for index in reversed(range(op.uncaptured_input_count, len(op.inputs))):
            position = index - len(op.inputs)
            if not any(body.is_used(body.inputs[position]) for body in op.bodies.values()):
                graph.remove_capture(op, index)


_ROUNDS = 16  # exporters nest shape computations a few levels deep
_SMALL = 256  # bytes; about the size of the node that computes them
_TEMPORARY = 1 << 20  # bytes by which a result may exceed eight times its operands


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    """Replace ops on constants by their results.

    before: shape(constant) -> ConstantOfShape -> w -> Conv
    after:  w(constant) -> Conv

    Ops in bodies are folded too, captured constants become constants of the body, and a body that certainly runs once
    replaces its op.

    A result that is larger than the constants that it replaces is stored only within a small total (`Growth.folding`), and
    never if it is a Cast. Otherwise the op stays, unless an anchor reads the result: then the result is a `Deferred`
    constant, which is planned and packed as a constant, and written as the constants and ops that compute it. Results beyond
    `max_bytes_in_memory` are deferred, too.

    Attributes:
        max_bytes_in_memory: the bytes of results that are kept in memory; further results are computed whenever they are read.
    """

    max_bytes_in_memory: int = 64 << 20

    name = "fold-constants"
    justifies_rewrite = False
    handles_bodies = True
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold until nothing changes, since constants determine shapes and branches, and shapes are constants."""
        for _ in range(_ROUNDS):
            found = False
            graphs = [graph]
            for each in graphs:  # it grows by the bodies of every graph
                found |= self._inline_certain_bodies(each) | self._fold_shapes(each)
                found |= self._fold(each, context) | self._sink(each)
                graphs += (body for op in each.ops if boundary(op) is not None for body in op.bodies.values())
            if not found:
                break
            if any(_is_unknown(value) for each in graphs for value in each.values):
                infer_again(graph)

    def _inline_certain_bodies(self, graph: Graph) -> bool:
        """Replace ops by their bodies if these certainly run once. Returns whether it replaced an op."""
        found = False
        while certain := [(op, name) for op in graph.ops if (name := unconditional_region(op))]:
            for op, name in certain:
                inline_region(graph, op, name)
            found = True
        return found

    def _sink(self, graph: Graph) -> bool:
        """Turn captured constants into constants of the bodies, sharing the elements. Returns whether there were any."""
        found = False
        for op in graph.ops:
            captured = range(op.uncaptured_input_count, len(op.inputs)) if boundary(op) is not None else ()
            constants = [
                (index, value) for index in captured if (value := op.inputs[index]) is not None and value.is_constant
            ]
            for index, value in constants:
                for body in op.bodies.values():
                    _localize(body, body.inputs[index - len(op.inputs)], value)
            for index, _ in reversed(constants):
                graph.remove_capture(op, index)
            found |= bool(constants)
        return found

    def _fold_shapes(self, graph: Graph) -> bool:
        """Replace results whose elements type inference has computed. Returns whether it replaced a result."""
        found = False
        for op in graph.ops:
            folded: dict[str, Value] = {}
            for value in op.outputs:
                array = value.known if value is not None else None
                if array is not None and value is not None and graph.is_used(value):
                    type = TensorType(DType.of(array), array.shape)
                    folded[value.name] = _replace(graph, value, type, ArrayData(array))
            if folded:
                # Also removes the ops that compute a shape for this op alone: other passes would count them as readers.
                graph.remove_if_dead(op)
                _take_names(graph, folded)
                found = True
        return found

    def _fold(self, graph: Graph, context: PassContext) -> bool:
        """Replace the results that other ops read by constants. Returns whether it replaced a result."""
        foldable = self._foldable(graph)
        chosen = _chosen(graph, foldable, context)
        folded: dict[str, Value] = {}
        for value, data in self._results(graph, chosen, context).items():
            if data is None:
                context.note(self, value.name, "it could not be computed ahead of time")
            else:
                folded[value.name] = _replace(graph, value, value.type, data)
        for op in reversed(foldable):
            outputs = op.present_outputs
            if not any(graph.is_used(value) for value in outputs):
                graph.remove_op(op)
        _take_names(graph, folded)
        return bool(folded)

    def _results(self, graph: Graph, chosen: Mapping[Value, bool], context: PassContext) -> dict[Value, Data | None]:
        """The constants for values, given for each whether it is larger than the constants it is computed from."""
        found: dict[Value, Data | None] = {}
        eager, remaining = [], self.max_bytes_in_memory
        for value, is_expanded in chosen.items():
            size = _nbytes(value)
            found[value] = defer(graph, value, is_expanded) if is_expanded or size > remaining else None
            if found[value] is None:
                eager.append(value)
                remaining -= min(remaining, size)
        for value, array in zip(eager, evaluate(graph, eager), strict=True):
            found[value] = None if array is None else ArrayData(array)
        return found

    def _foldable(self, graph: Graph) -> dict[Op, None]:
        """The ops that depend on constants alone, in topological order."""
        foldable: dict[Op, None] = {}
        computed: set[Value] = set()
        for op in graph.ops:
            inputs = op.present_inputs
            if not all(value.is_constant or value in computed for value in inputs) or not is_foldable(op):
                continue
            outputs = op.present_outputs
            if all(_is_bounded(graph, value, inputs) for value in outputs):
                foldable[op] = None
                computed.update(outputs)
        return foldable


def _chosen(graph: Graph, foldable: dict[Op, None], context: PassContext) -> dict[Value, bool]:
    """The results to replace, and whether each is larger than the constants it replaces.

    Ops are visited from the last to the first, because an op that stays is a reader of the results of the ops before it.
    """
    chosen: dict[Value, bool] = {}
    kept: set[Op] = set()
    for op in reversed(foldable):
        read = [
            value
            for value in op.present_outputs
            if not graph.is_output(value)
            and any(reader not in foldable or reader in kept for reader in graph.readers(value))
        ]
        for value in read:
            growth = _nbytes(value) - _released(graph, value, foldable)
            if growth <= 0 or _nbytes(value) <= _SMALL:
                chosen[value] = False
            elif _is_read_by_anchor(graph, value):
                chosen[value] = True
            elif growth <= context.growth.folding and not is_type_conversion(op):
                context.growth.folding -= growth
                chosen[value] = False
        if any(value not in chosen for value in read):
            kept.add(op)
    return dict(reversed(chosen.items()))


def _released(graph: Graph, value: Value, foldable: Mapping[Op, None]) -> int:
    """The bytes of constants that no op would read any more if a value were a constant."""
    released, pending, ops = 0, [value], set[Op]()
    while pending:
        op = graph.producer(pending.pop())
        assert op is not None
        ops.add(op)
        for source in dict.fromkeys(op.present_inputs):
            if graph.is_output(source) or any(reader not in ops for reader in graph.readers(source)):
                continue
            if source.data is not None:
                released += source.data.nbytes
            elif (producer := graph.producer(source)) in foldable and _has_one_result(producer):
                pending.append(source)
    return released


def _has_one_result(op: Op | None) -> bool:
    return op is not None and len(op.present_outputs) == 1


def _nbytes(value: Value) -> int:
    assert value.static_shape is not None and value.dtype is not None
    return estimated_volume(value.static_shape) * value.dtype.bits // 8


def _is_bounded(graph: Graph, value: Value, inputs: list[Value]) -> bool:
    """Whether a result is small, not much larger than its operands, or read by an anchor, so that it may be computed."""
    if value.static_shape is None or not isinstance(value.type, TensorType):
        return False
    known = sum(_nbytes(each) for each in inputs if each.static_shape is not None and each.dtype is not None)
    return _nbytes(value) <= 8 * known + _TEMPORARY or _is_read_by_anchor(graph, value)


def _is_read_by_anchor(graph: Graph, value: Value) -> bool:
    return any((rule := rule_of(reader)) is not None and rule.is_anchor for reader in graph.readers(value))


def _replace(graph: Graph, value: Value, type: TensorType | OpaqueType, data: Data) -> Value:
    """Let the readers of a value read a constant."""
    constant = graph.new_value(f"{value.name}__folded", type, data=data, tensor=value.tensor)
    graph.replace_uses(value, constant)
    return constant


def _take_names(graph: Graph, folded: Mapping[str, Value]) -> None:
    """Give constants the names of the values that they replace, if these are unused."""
    for name, constant in folded.items():
        if graph.find(name) is None:
            graph.rename(constant, name)


def _localize(body: Graph, formal: Value, value: Value) -> None:
    """Replace a captured constant of a body by a constant of the body."""
    if not body.is_used(formal):
        return
    name = formal.name
    body.rename(formal, body.fresh_name(f"{name}__captured"))
    constant = body.new_value(name, value.type, data=value.data, tensor=formal.tensor, origin=value.origin)
    body.replace_uses(formal, constant)
    body.replace_output(formal, constant)


def _is_unknown(value: Value) -> bool:
    """Whether the rank of a tensor is unknown, or an extent has neither a number nor a name in the model."""
    if not isinstance(value.type, TensorType):
        return False
    return value.shape is None or any(map(is_unknown, value.shape))


class EvaluateExtents(Pass):
    """Record extents that have no symbolic expression in the context; the graph does not change.

    before: x(f32[N,8,H,W]) -> NonMaxSuppression, a MaxPool that rounds up ... -> y(f32[?1,?2])          unknown
    after:  the same; where N = 1, H = 224 and W = 224, ?1 is 196 and ?2 is 112

    It runs after constant folding, which renames dimensions, and before the first pass that reads the size of a tensor.
    """

    name = "evaluate-extents"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Infer shapes with numbers for the dimensions of the inputs."""
        context.sizes = evaluate_extents(graph, context.sizes)


class Reformulate(Pass):
    """Write ops by others that compute the same in less time.

    before: Einsum {equation = "bihd,bjhd->bhij"} (q, k)
    after:  MatMul(Transpose(q), Transpose(k))
    """

    name = "reformulate"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Apply the function of the op type, if there is one for the dialect and the file may grow by its constants."""
        budget = context.budget(self, graph)
        for op in graph.ops:
            rule, write = rule_of(op), reformulation(op, has_kernels=bool(context.kernels))
            is_exact = rule is not None and rule.family in ("view", "rearrangement")
            if write is None or not (is_exact or context.may_change_rounding(self, op.y)):
                continue
            value = write(graph, op)
            if value is None or not _may_grow(_added_ops(graph, op, value), op, context, budget):
                continue
            if not is_exact:
                context.changed_rounding(self, op.y)
            graph.replace_value(op.y, value)


def _added_ops(graph: Graph, op: Op, value: Value) -> list[Op]:
    """The ops that were added behind an op to compute a value."""
    added, pending = [], [value]
    while pending:
        producer = graph.producer(pending.pop())
        if producer is not None and producer not in added and producer.order[:-1] == op.order:
            added.append(producer)
            pending += producer.present_inputs
    return added


def _may_grow(added: Sequence[Op], op: Op, context: PassContext, budget: PassBudget) -> bool:
    """Whether the file may grow by the constants of added ops, which are estimated to save as much time as they take."""
    growth = sum(each.data.nbytes for step in added for each in step.present_inputs if each.data is not None)
    if growth <= NOTABLE:
        return True
    prices = context.prices_at(context.sizes)
    seconds = sum(prices.kernel_seconds(each, canonical_signature(each)) for each in added)
    return budget.request(op.name or op.kind, growth, seconds)


class FusePatterns(Pass):
    """Apply the fusion patterns whose fused op has a kernel in the dialect.

    before: x -> Div(sqrt 2) -> Erf -> Add(1) -> Mul(0.5) -> Mul(x) -> y
    after:  x -> com.microsoft::Gelu -> y
    """

    name = "fuse-patterns"
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Match the patterns at every op, in topological order."""
        for op in graph.ops:
            for pattern in patterns_at(op):
                if op not in graph or not self.is_applicable(pattern, context):
                    continue
                match = pattern.match(graph, op)
                if match is None:
                    continue
                external_use = match.external_use(graph)
                if external_use is None:
                    _fuse(graph, pattern, match)
                else:
                    context.note(self, op.name or op.kind, f"no {pattern.name}: {external_use.name} has other readers")

    def is_applicable(self, pattern: FusionPattern, context: PassContext) -> bool:
        """Whether the dialect has a kernel for the fused op."""
        return pattern.fused_op in context.kernels


def _fuse(graph: Graph, pattern: FusionPattern, match: Match) -> None:
    """Insert the fused op at the position of the last op of the match, under its name."""
    last = graph.producer(match.result)
    assert last is not None
    graph.opsets.setdefault(pattern.fused_op.rpartition("::")[0], 1)
    for value in match.inputs:
        if value is not None and value not in graph:
            value.name = value.tensor = graph.fresh_name(value.name)
            graph.add_value(value)
    stem, attributes = f"{match.result.name}__{pattern.name}", dict(match.attributes)
    kind, type = pattern.fused_op, match.result.type
    new = graph.new_result(kind, match.inputs, type, stem, last, name=last.name, attributes=attributes)
    graph.replace_value(match.result, new)


class RaisePatterns(FusePatterns):
    """Apply the fusion patterns whose fused op every dialect can expand; they alone are no reason to rewrite a model.

    before: x -> Reshape -> InstanceNormalization -> Reshape -> Mul -> Add -> y       channels come first
    after:  x -> layoutopt::GroupNormalization -> y                                   any order of the axes
    """

    name = "raise-patterns"
    justifies_rewrite = False

    def is_applicable(self, pattern: FusionPattern, context: PassContext) -> bool:
        """Whether every dialect can expand the fused op."""
        del context
        rule = rules().get(pattern.fused_op)
        is_standard = "::" not in pattern.fused_op and not pattern.needs_kernel
        return rule is not None and (rule.is_pseudo_op or is_standard)
