"""The op type `acme::Mirror`: it reverses the order of the elements along one axis."""

from layoutopt.extend import PADDING_KEPT, OneAxis


class Mirror(OneAxis):
    """Any format is legal that does not block the axis. The op on the physical array is a Mirror along the physical axis."""

    family = "rearrangement"
    ops = ("acme::Mirror",)
    padding = PADDING_KEPT
