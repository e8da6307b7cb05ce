"""The op type `acme::Halve`: x / 2."""

from layoutopt.extend import PADDING_KEPT, Elementwise, Node, TensorType, type_function


@type_function("acme::Halve")
def halved(node: Node) -> list[TensorType | None]:
    """The result has the type of the input."""
    x = node.operand(0)
    return [x.type if x is not None and isinstance(x.type, TensorType) else None]


class Halve(Elementwise):
    """Any format is legal. Half of a zero padding element is zero."""

    ops = ("acme::Halve",)
    padding = PADDING_KEPT
