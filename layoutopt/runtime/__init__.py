"""Access to onnxruntime: sessions, evaluation of constants, kernel queries, and the optimised form of a model."""
