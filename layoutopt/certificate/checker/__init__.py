"""The checker of certificates. It imports onnx, numpy and the error classes, and nothing of the compiler."""
