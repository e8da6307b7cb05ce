"""What onnxruntime has saved, in a form that onnx takes and that is the same every time."""

from collections.abc import Iterator

import onnx_ir as ir


def compute_outputs(settled: ir.Model) -> None:
    """Let nodes give what subgraphs give: onnxruntime makes initializers of constants, which onnx refuses there."""
    for graph in settled.graphs():
        for value in graph.outputs:
            name, tensor = value.name or "", value.const_value
            if graph is settled.graph or tensor is None or name not in graph.initializers:
                continue
            result = ir.Value(name=name, type=value.type, shape=value.shape)
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[result])
            del graph.initializers[name]
            if len(graph):
                graph.insert_before(graph[0], constant)
            else:
                graph.append(constant)
            value.replace_all_uses_with(result, replace_graph_outputs=True)


def name_anew(model: ir.Model, settled: ir.Model) -> None:
    """Name what onnxruntime has made by where it stands: its own numbers differ from run to run, and do not end at subgraphs."""  # noqa: E501
    nodes = {node.name for node in model.graph.all_nodes()}
    values = {value.name for value in _values(model)}
    initializers = [value for graph in settled.graphs() for value in graph.initializers.values()]
    for place, value in enumerate(each for each in initializers if each.name not in values):
        value.name = _fresh(f"constant__{place}", values)
    for place, node in enumerate(settled.graph.all_nodes()):
        if node.name and node.name not in nodes:
            node.name = _fresh(f"{node.op_type}__{place}", nodes)
        for index, value in enumerate(node.outputs):
            if value.name and value.name not in values and not value.is_graph_output():
                value.name = _fresh(f"{node.op_type}__{place}_{index}", values)


def _fresh(name: str, taken: set[str | None]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """All values of a model, those of its subgraphs included."""
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs
