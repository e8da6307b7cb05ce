"""From a model of onnx_ir to a file or message, whole or not at all."""
