"""Writes a model of onnx_ir atomically to a file, or to a message."""
