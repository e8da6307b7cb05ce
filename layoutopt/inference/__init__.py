"""Type inference: element types, shapes and symbolic extents of the values of a graph; and lifting, which ends with it.

onnx_ir.Model --lift--> Graph
"""

from layoutopt.inference.driver import evaluate_extents
from layoutopt.inference.lift import infer_again, lift
