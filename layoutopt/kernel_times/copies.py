"""A model of several independent copies of a small one, so that the overhead of a run counts less."""

import onnx
from onnx import compose


def replicated(model: bytes, count: int) -> bytes:
    """A model of `count` copies that share their initializers; the inputs and outputs of copy i begin with `c{i}_`."""
    whole = onnx.load_from_string(model)
    graph = onnx.GraphProto()
    graph.CopyFrom(whole.graph)
    whole.graph.ClearField("node")
    for field in (whole.graph.input, whole.graph.output, whole.graph.value_info):
        del field[:]
    for number in range(count):
        copy = compose.add_prefix_graph(graph, prefix(number), rename_initializers=False)
        whole.graph.node.extend(copy.node)
        whole.graph.input.extend(copy.input)
        whole.graph.output.extend(copy.output)
    return bytes(whole.SerializeToString())


def prefix(number: int) -> str:
    """The prefix of the names of a copy."""
    return f"c{number}_"


__all__ = ["prefix", "replicated"]
