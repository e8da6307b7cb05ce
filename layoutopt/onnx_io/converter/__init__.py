"""Between models of onnx_ir and graphs: lift, emit, inlining of functions, the vocabulary of both."""
