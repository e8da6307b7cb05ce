"""Portable models: blocked kernels on machines with blocks of the planned size, standard operators on all other machines.

    block = Shape(ReorderInput(4 channels))[1]          8 or 16 by machine
    y = If(block == 8) { native model } else { standard model }

onnxruntime infers the shape when it loads the model, so it computes the condition, replaces the If by the branch and drops the
other branch and its weights: the native model runs as it does alone. Without optimisations the If is computed at run time.

Where onnxruntime has no blocked operators it uses the functions of the same names in the model. These are placeholders with
which the native branch loads, but does not run; one returns the zeros of the condition as they are, so that the extent is 4
and the standard branch is taken. There is one per name, since onnxruntime 1.23 takes one function for all overloads.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from layoutopt.errors import InvariantError
from layoutopt.ir.constants import representatives
from layoutopt.ir.types import Data, TensorType
from layoutopt.onnx_io.messages import copy_map_type, copy_sidecar
from layoutopt.onnx_io.vocabulary import FROM_IR
from layoutopt.runtime.definitions import placeholder
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN

BLOCK_QUERY = "native kernels run on machines with blocks of {} channels"
"""The name of the node that queries the block size."""

_PORTABLE = re.compile(re.escape(BLOCK_QUERY).replace(r"\{\}", r"(\d+)"))
_CHANNELS = 4  # fewer than in any block
_REORDER = "ReorderInput"
_IR_VERSION = 8  # the first one with functions
_LISTS_INITIALIZERS = 4  # models of older IR versions list all initializers as inputs


def portable_block(names: Iterable[str]) -> int | None:
    """Channels per block of a portable model, from the names of its nodes; None for any other model."""
    matches = (_PORTABLE.search(name) for name in names)
    return next((int(match[1]) for match in matches if match), None)


def portable_model(native: ir.Model, standard: ir.Model, block: int) -> ir.Model:
    """The portable model of two models with the same inputs and outputs, whose graphs become its branches.

    Args:
        native: the model with blocked operators.
        standard: the model for all other machines.
        block: channels per block of the first one.
    """
    scope = _Scope.of(native, standard)
    inputs = [scope.shared_input(name) for name in scope.inputs]
    outputs = [_same_type(value) for value in native.graph.outputs]
    for number, model in enumerate((native, standard)):
        _make_branch(model, ("native", "standard")[number], scope)
    constants = scope.constants()
    condition, nodes, numbers = _condition(block, scope)
    branches = {"then_branch": native.graph, "else_branch": standard.graph}
    attributes = [ir.AttrGraph(name, graph) for name, graph in branches.items()]
    nodes.append(ir.Node("", "If", [condition], attributes, outputs=outputs, name="native_blocks/If"))
    opsets = {**standard.opset_imports, **native.opset_imports}
    main = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=[*(value for value in inputs if value.const_value is not None), *numbers, *constants],
        opset_imports=opsets,
        name=native.graph.name,
        doc_string=native.graph.doc_string,
    )
    for graph in branches.values():
        graph.name, graph.doc_string = scope.fresh("branch"), None
    model = ir.Model(
        main,
        ir_version=max(native.ir_version, standard.ir_version, _IR_VERSION),
        producer_name=native.producer_name,
        producer_version=native.producer_version,
        domain=native.domain,
        model_version=native.model_version,
        doc_string=native.doc_string,
        functions=_functions(native, standard),
        metadata_props=dict(native.metadata_props),
    )
    copy_sidecar(model, native)
    return model


def _same_type(value: ir.Value) -> ir.Value:
    """A new value with the name and the type of another one."""
    result = ir.Value(name=value.name, shape=value.shape, type=value.type, doc_string=value.doc_string)
    copy_map_type(result, value)
    return result


@dataclass(slots=True)
class _Scope:
    """Names and values of two models that become the branches of one.

    Attributes:
        models: the models.
        inputs: the names of their inputs.
        taken: the number of values of each name.
    """

    models: Sequence[ir.Model]
    inputs: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, *models: ir.Model) -> "_Scope":
        scope = cls(models)
        for model in models:
            scope.taken.update(value.name or "" for graph in model.graphs() for value in _values(graph))
        scope.inputs = [value.name or "" for value in models[0].graph.inputs if not _is_constant(value, models[0])]
        return scope

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        while self.taken[name]:
            name += "_"
        self.taken[name] += 1
        return name

    def shared_input(self, name: str) -> ir.Value:
        """The input of the portable model in place of those of the two models, with its default if it has one."""
        values = [next(value for value in model.graph.inputs if value.name == name) for model in self.models]
        result = _same_type(values[0])
        result.const_value = values[0].const_value
        for model, value in zip(self.models, values, strict=True):
            _copy_to_outputs(value, model.graph)
            value.replace_all_uses_with(result)
            model.graph.inputs.remove(value)
            model.graph.initializers.pop(name, None)
        return result

    def constants(self) -> list[ir.Value]:
        """The constants of both branches, moved to the main graph, equal ones once.

        onnxruntime copies constants in branches when it loads a model: the memory peak of resnet50 was 623 instead of 264 MB.
        """
        values = [value for model in self.models for value in model.graph.initializers.values()]
        tensors = {value: tensor for value in values if (tensor := value.const_value) is not None}
        found: dict[Data, Data] = representatives(
            (TensorType(FROM_IR[tensor.dtype], tuple(tensor.shape.numpy())), tensor)
            for tensor in tensors.values()
            if tensor.dtype in FROM_IR
        )
        groups: dict[int, list[ir.Value]] = {}
        for value, tensor in tensors.items():
            groups.setdefault(id(found.get(tensor, value)), []).append(value)
        return [self._hoisted(values) for values in groups.values()]

    def _hoisted(self, values: Sequence[ir.Value]) -> ir.Value:
        """The constant of the main graph that replaces equal constants of the branches, under an unused name."""
        name, tensor = values[0].name or "", values[0].const_value
        assert tensor is not None
        if self.taken[name] > sum(value.name == name for value in values):
            name = self.fresh(name)
        result = ir.Value(name=name, const_value=tensor)
        result.shape, result.type = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        for value in values:
            assert value.graph is not None
            value.replace_all_uses_with(result)
            del value.graph.initializers[value.name or ""]
        return result


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _is_constant(value: ir.Value, model: ir.Model) -> bool:
    """Whether an input is an initializer that a model lists since its IR version requires it."""
    return model.ir_version < _LISTS_INITIALIZERS and value.name in model.graph.initializers


def _make_branch(model: ir.Model, branch: str, scope: _Scope) -> None:
    """Turn a graph into a branch: without inputs, and with results of nodes that have unique names."""
    graph = model.graph
    graph.inputs.clear()  # these are constants, which IR versions before 4 list as inputs
    for value in list(graph.initializers.values()):
        _copy_to_outputs(value, graph)
    seen: set[ir.Value] = set()
    for index, value in enumerate(graph.outputs):
        if value in seen:  # a value that is two outputs
            graph.outputs[index] = _identity(value, graph)
        seen.add(graph.outputs[index])
    for value in graph.outputs:
        value.name = scope.fresh(f"{value.name}/{branch}")


def _copy_to_outputs(value: ir.Value, graph: ir.Graph) -> None:
    """Insert an Identity before every output of a graph that is the given value, an input or a constant."""
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = _identity(value, graph)


def _identity(value: ir.Value, graph: ir.Graph) -> ir.Value:
    result = ir.Value(name=value.name, shape=value.shape, type=value.type)
    graph.append(ir.Node("", "Identity", [value], outputs=[result]))
    return result


def _condition(block: int, scope: _Scope) -> tuple[ir.Value, list[ir.Node], list[ir.Value]]:
    """The condition that this machine has blocks of the given size: the value, its nodes, and their constants."""

    def number(array: np.ndarray) -> ir.Value:
        name = scope.fresh("native_blocks/constant")
        tensor = ir.Tensor(array, name=name)
        return ir.Value(name=name, const_value=tensor, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype))

    integers = (np.asarray(each, dtype=np.int64) for each in (1, block))
    numbers = [number(np.zeros((1, _CHANNELS, 1, 1), dtype=np.float32)), *map(number, integers)]
    nodes: list[ir.Node] = []

    def add(op_type: str, *inputs: ir.Value, domain: str = "", name: str = "") -> ir.Value:
        result = ir.Value(name=scope.fresh(f"native_blocks/{op_type}"))
        nodes.append(ir.Node(domain, op_type, inputs, outputs=[result], name=name or result.name))
        return result

    image = add(_REORDER, numbers[0], domain=BLOCKED_DOMAIN, name=BLOCK_QUERY.format(block))
    extent = add("Gather", add("Shape", image), numbers[1])
    return add("Equal", extent, numbers[2]), nodes, numbers


def _functions(native: ir.Model, standard: ir.Model) -> list[ir.Function]:
    """The functions of both models, and placeholders of the blocked operators."""
    functions = dict(standard.functions)
    for identifier, function in native.functions.items():
        if identifier in functions and _text(functions[identifier]) != _text(function):
            raise InvariantError(f"the function {function.name} differs between both models", where="portable")
        functions[identifier] = function
    used = {node.op_type for node in native.graph.all_nodes() if node.domain == BLOCKED_DOMAIN}
    made = (placeholder(op_type, native.opset_imports[""]) for op_type in sorted({*used, _REORDER}))
    return [*functions.values(), *map(ir.serde.deserialize_function, made)]


def _text(function: ir.Function) -> bytes:
    return bytes(ir.serde.serialize_function(function).SerializeToString(deterministic=True))
