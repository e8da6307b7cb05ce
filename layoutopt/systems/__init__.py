"""The layout systems of CuTe, CUTLASS and oneDNN, for users of these libraries. `optimize` does not import them."""
