"""Type inference: element types, shapes and symbolic extents of the values of a graph."""

import layoutopt.onnx_io  # noqa: F401  (lifting infers types, and inference reads the vocabulary of onnx_io: that one first)
