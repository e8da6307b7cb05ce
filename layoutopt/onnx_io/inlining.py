"""Inlining of model-local functions, as onnxruntime does when it loads a model.

Functions that layoutopt wrote are always inlined, others before planning, so that their ops are planned. A function is not
inlined if a kernel implements it, if its body has other semantics at the model's opsets, or if the model would be too large: a
function that calls another one twice, which calls a third one twice and so on, has exponentially many ops.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

import onnx_ir as ir
from onnx_ir.passes import PreconditionError
from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass

from layoutopt.errors import ModelError
from layoutopt.ir.graph import DOMAIN, Graph, UnusedNames
from layoutopt.onnx_io.schema import find_schema, opsets_of
from layoutopt.onnx_io.structure import build
from layoutopt.onnx_io.vocabulary import DimNames, subgraphs, values_of

_RUNTIME_DOMAINS = ("ai.onnx", "com.microsoft")  # with their subdomains: runtimes have kernels for their ops


def inline_functions(model: ir.Model, is_known: Callable[[str], bool]) -> tuple[ir.Model, dict[str, str]]:
    """Inline the functions that layoutopt wrote, and those that no kernel implements.

    Args:
        model: the model, which is not changed.
        is_known: whether calls of this op type, with its domain in front, are not inlined.

    Returns:
        The model with fewer functions, the original if there are none to inline; and why others are not inlined, by name.

    Raises:
        ModelError: functions call each other recursively, or one that layoutopt wrote is for another opset than the model.
    """
    reasons = {function: _reason(function, model, is_known) for function in model.functions.values()}
    inlined = {function.identifier() for function, reason in reasons.items() if not reason}
    if is_too_large(model, inlined):
        too_large = f"inlining would lead to more than {MAX_INLINED_OPS:,} ops, or to too many copies of one"
        reasons = {function: reason or too_large for function, reason in reasons.items()}
    kept = {_name(function): reason for function, reason in reasons.items() if reason}
    return _inlined(model, [function for function, reason in reasons.items() if not reason]), kept


def _reason(function: ir.Function, model: ir.Model, is_known: Callable[[str], bool]) -> str:
    """The reason why a function is not inlined; empty if it is."""
    if _is_below(function.domain, DOMAIN):
        if reason := incompatibility(function, model):
            raise ModelError(reason, where=_name(function), hint="let functions import the opsets of the model")
        return ""
    if is_known(f"{function.domain}::{function.name}"):
        return "its op type has a layout rule or a kernel"
    if not function.domain or any(_is_below(function.domain, domain) for domain in _RUNTIME_DOMAINS):
        return f"runtimes have kernels for ops of the domain {function.domain or 'ai.onnx'}"
    calls = (node for node in _all_nodes(model) if node.op_identifier() == function.identifier())
    if any(map(subgraphs, calls)):
        return "a call has a graph as an attribute"
    return incompatibility(function, model)


def incompatibility(function: ir.Function, model: ir.Model) -> str:
    """The reason why a function's body would have other semantics in the model; empty if there is none."""
    theirs, ours = opsets_of(function.opset_imports), opsets_of(model.opset_imports)
    others = {domain: version for domain, version in theirs.items() if ours.get(domain, version) != version}
    for node in function.all_nodes():
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain in others:
            there, here = (find_schema(node.op_type, domain, each[domain]) for each in (theirs, ours))
            if there is None or here is None or there.since_version != here.since_version:
                versions = f"{theirs[domain]} of {domain or 'ai.onnx'}, the model for {ours[domain]}"
                return f"it is written for opset {versions}, and {node.op_type} has changed between them"
    return ""


def _inlined(model: ir.Model, functions: list[ir.Function]) -> ir.Model:
    """The model with calls of these functions inlined."""
    if not functions:
        return model
    inlined = {function.identifier() for function in functions}
    copy = _copy(model)
    _name_nodes(copy.functions[identifier] for identifier in inlined)
    for identifier in inlined:  # every op has the same semantics at the model's opsets
        imports = copy.functions[identifier].opset_imports
        imports.update({domain: copy.opset_imports[domain] for domain in imports if domain in copy.opset_imports})
        _drop_types(copy.functions[identifier])
    try:
        InlinePass(lambda function: function.identifier() in inlined)(copy)
    except (PreconditionError, ValueError) as error:
        raise ModelError(str(error), where="model", hint="export the model again") from error
    _make_names_unique(copy)
    RemoveUnusedOpsetsPass(process_functions=False)(copy)
    return copy


def _name_nodes(functions: Iterable[ir.Function]) -> None:
    """Name the nodes without a name. onnx_ir takes quadratic time to rename the copies of nodes with equal names."""
    for function in functions:
        for index, node in enumerate(function):
            node.name = node.name or f"{function.name}_{index}"


def _drop_types(function: ir.Function) -> None:
    """Remove the declared types of values that standard operators compute: ONNX Runtime does not read them."""
    opsets = opsets_of(function.opset_imports)
    for node in function.all_nodes():
        if find_schema(node.op_type, node.domain, opsets.get(node.domain, 0)) is not None:
            for value in node.outputs:
                value.type = value.shape = None


def _copy(model: ir.Model) -> ir.Model:
    """A copy of a model.

    Raises:
        ModelError: onnx_ir cannot copy it: a value is read before it is computed, or never computed.
    """
    try:
        return model.clone()
    except Exception as error:  # onnx_ir raises several types
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            build(model, graph, Graph(graph.name or "", opsets_of(graph.opset_imports)), DimNames())
        hint = "put the nodes in the order in which they run"
        raise ModelError("a value is read before it is computed", where="model", hint=hint) from error


def _make_names_unique(model: ir.Model) -> None:
    """Rename values of subgraphs that have the name of another value, since they would shadow values after inlining."""
    taken = {""}
    unused = UnusedNames(taken)
    for value in values_of(model):
        if value.name:
            value.name = unused.find(value.name)
            taken.add(value.name)


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """All nodes of a model, those of functions and subgraphs included."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _is_below(domain: str, other: str) -> bool:
    return f"{domain}.".startswith(f"{other}.")


def _name(function: ir.Function) -> str:
    return f"{function.domain}::{function.name}" + (f":{function.overload}" if function.overload else "")


MAX_INLINED_OPS = 100_000
"""The largest number of ops after inlining; if it would be exceeded, no function is inlined."""

MAX_NAMES_TRIED = 10_000_000
"""onnx_ir names the copies of a node x, x_2, x_3 and so on, and tries all of these for each copy, which takes seconds."""

MAX_INFERRED_OPS = 10_000
"""The largest number of ops after inlining with which onnx infers functions, since it infers a body again for each call."""


def is_too_large(model: ir.Model, functions: Collection[ir.OperatorIdentifier], max_ops: int = MAX_INLINED_OPS) -> bool:
    """Whether inlining some functions would lead to more ops than a limit, or to too many copies of one op."""
    calls = {each: [node.op_identifier() for node in model.functions[each].all_nodes()] for each in functions}
    try:
        known = {each: [callee for callee in body if callee in calls] for each, body in calls.items()}
        order = [*TopologicalSorter(known).static_order()]
    except CycleError:
        return False
    copies = Counter(node.op_identifier() for node in model.graph.all_nodes())
    for each in reversed(order):  # those that call others first
        for callee, count in Counter(calls[each]).items():
            copies[callee] += min(copies[each], max_ops) * count
    num_ops = sum(len(calls[each]) * copies[each] for each in order)
    num_tried = sum(len(calls[each]) * copies[each] ** 2 // 2 for each in order)
    return num_ops > max_ops or num_tried > MAX_NAMES_TRIED
