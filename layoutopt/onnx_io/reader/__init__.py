"""From a file or message to a model of onnx_ir: parsing, checks, repairs, external data."""
