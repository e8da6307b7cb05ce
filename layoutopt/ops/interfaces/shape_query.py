"""Ops that read the type of an operand and none of its elements."""


class ShapeQuery:
    """The result of the op depends on the types of its inputs alone."""


__all__ = ["ShapeQuery"]
