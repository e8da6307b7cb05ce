"""Conversion between models of onnx_ir and graphs: lifting, emission, inlining of functions, types and attributes."""
