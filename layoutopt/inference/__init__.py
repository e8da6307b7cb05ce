"""Type inference: element types, shapes and symbolic extents of the values of a graph; and lifting, whose last stage it is.

onnx_ir.Model --lift--> Graph
"""

from layoutopt.inference.declarations import infer_again
from layoutopt.inference.lift import lift
from layoutopt.inference.measure import measure

__all__ = ["infer_again", "lift", "measure"]
