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
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from layoutopt.errors import InvariantError
from layoutopt.onnx_io.baked import normalized
from layoutopt.runtime.definitions import placeholder
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN

BLOCK_QUERY = "native kernels run on machines with blocks of {} channels"
"""The name of the node that queries the block size."""

_PORTABLE = re.compile(re.escape(BLOCK_QUERY).replace(r"\{\}", r"(\d+)"))
_REORDER = "ReorderInput"
_IR_VERSION = 8  # the first one with functions


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
    branches = {"native": native, "standard": standard}
    inputs = [*map(_copy, native.graph.inputs)]
    outputs = [_copy(value, has_default=False) for value in native.graph.outputs]
    functions = _functions(native, standard)
    for name, model in branches.items():
        _make_branch(model, name, inputs)
    main = _condition(block)
    attributes = [ir.AttrGraph("then_branch", native.graph), ir.AttrGraph("else_branch", standard.graph)]
    main.append(ir.Node("", "If", main.outputs, attributes, outputs=outputs, name="native_blocks/If"))
    main.inputs.extend(inputs)
    main.outputs[:] = outputs
    for value in inputs:
        if value.const_value is not None:
            main.initializers.add(value)
    main.opset_imports.update({**standard.opset_imports, **native.opset_imports})
    main.name, main.doc_string = native.graph.name, native.graph.doc_string
    for name, model in branches.items():
        model.graph.name, model.graph.doc_string = name, None
    native.graph = main
    native.ir_version = max(native.ir_version, standard.ir_version, _IR_VERSION)
    for each in functions:
        kept = native.functions.setdefault(each.identifier(), each)
        if ir.serde.serialize_function(kept) != ir.serde.serialize_function(each):
            raise InvariantError(f"the function {each.name} differs between both models", where="portable")
    # It moves large constants to the main graph. onnxruntime copies those in branches when it loads a model: the memory peak of
    # resnet50 was 623 instead of 264 MB.
    return normalized(native, native)


def _copy(value: ir.Value, *, has_default: bool = True) -> ir.Value:
    """A new value with the name, the type and the default of another one."""
    result = ir.Value(name=value.name, shape=value.shape, type=value.type, doc_string=value.doc_string)
    result.const_value = value.const_value if has_default else None
    return result


def _make_branch(model: ir.Model, branch: str, inputs: Sequence[ir.Value]) -> None:
    """Turn a graph into a branch, which reads the inputs of the portable model, and whose outputs are results of nodes.

    The names of all values begin with that of the branch, so that no name shadows another one.
    """
    graph, shared = model.graph, {value.name: value for value in inputs}
    for index, value in enumerate(graph.outputs):
        if value.producer() is None or value in graph.outputs[:index]:
            result = ir.Value(name=f"{value.name}/output{index}", shape=value.shape, type=value.type)
            graph.append(ir.Node("", "Identity", [value], outputs=[result]))
            graph.outputs[index] = result
    for value in graph.inputs:
        if value.name is not None and value.name in shared:
            value.replace_all_uses_with(shared[value.name])
            graph.initializers.pop(value.name, None)
    graph.inputs.clear()
    for each in model.graphs():
        computed = (value for node in each for value in node.outputs if value.name)
        for value in (*each.inputs, *each.initializers.values(), *computed):
            value.name = f"{branch}/{value.name}"


def _condition(block: int) -> ir.Graph:
    """A graph whose output is the condition that this machine has blocks of the given size."""
    graph = ir.from_onnx_text(
        f"""<ir_version: {_IR_VERSION}, opset_import: ["" : 13, "{BLOCKED_DOMAIN}" : 1]>
        condition () => (bool native_blocks)
        <float[1,4,1,1] native_blocks_0 = {{0, 0, 0, 0}}, int64 native_blocks_1 = {{1}}, int64 native_blocks_2 = {{{block}}}>
        {{
            native_blocks_image = {BLOCKED_DOMAIN}.{_REORDER} (native_blocks_0)
            native_blocks_shape = Shape (native_blocks_image)
            native_blocks_extent = Gather (native_blocks_shape, native_blocks_1)
            native_blocks = Equal (native_blocks_extent, native_blocks_2)
        }}"""
    ).graph
    for node in graph:
        node.name = node.outputs[0].name
    graph[0].name = BLOCK_QUERY.format(block)
    return graph


def _functions(native: ir.Model, standard: ir.Model) -> list[ir.Function]:
    """The functions of the standard model, and placeholders of the blocked operators."""
    used = {node.op_type for node in native.graph.all_nodes() if node.domain == BLOCKED_DOMAIN}
    made = (placeholder(op_type, native.opset_imports[""]) for op_type in sorted({*used, _REORDER}))
    return [*standard.functions.values(), *map(ir.serde.deserialize_function, made)]
