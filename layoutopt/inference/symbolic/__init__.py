"""Symbolic shape inference: what onnx's own leaves open, in expressions of the model's dimensions.

onnx infers a model with names for dimensions, but does not compute with them: behind a Conv the height of an image has no
name, and behind a Reshape with a computed target nothing has. Here every node is inferred once more by onnx, by itself, with
operands whose extents have names: expressions are names to onnx. What it leaves open, the rules in `shapes` say, and
`elements` follows the arithmetic that exporters do on shapes. What nobody knows is a dimension of its own.

Numbers that onnx has found for the whole model stay. Names that a model declares for what its ops compute do not count:
exporters give outputs the names of inputs that they do not have.
"""

from layoutopt.inference.symbolic.walk import Boundaries, Refined, refine

__all__ = ["Boundaries", "Refined", "refine"]
