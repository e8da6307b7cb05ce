"""Reads a file or message as a model of onnx_ir: parsing, checks, repairs, external data."""
