"""The op type `acme::Mirror`: it reverses the order of the elements along one axis."""

from layoutopt.extend import KEPT, Lanes, Node, OneAxis, Op, Signature, TensorType, type_function


@type_function("acme::Mirror")
def mirrored(node: Node) -> list[TensorType | None]:
    """The result has the type of the input."""
    x = node.operand(0)
    return [x.type if x is not None and isinstance(x.type, TensorType) else None]


class Mirror(OneAxis):
    """Any format is legal that does not block the axis. The op on the physical array is a Mirror along the physical axis."""

    family = "rearrangement"
    ops = ("acme::Mirror",)
    becomes = KEPT

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """Padding elements of other axes move along with their rows."""
        return (inputs[0],)
