"""The op type `acme::Mirror`: it reverses the order of the elements along one axis."""

from layoutopt.extend import PADDING_KEPT, Node, OneAxis, TensorType, type_function


@type_function("acme::Mirror")
def mirrored(node: Node) -> list[TensorType | None]:
    """The result has the type of the input."""
    x = node.operand(0)
    return [x.type if x is not None and isinstance(x.type, TensorType) else None]


class Mirror(OneAxis):
    """Any format is legal that does not block the axis. The op on the physical array is a Mirror along the physical axis."""

    family = "rearrangement"
    ops = ("acme::Mirror",)
    padding = PADDING_KEPT
