"""Layout systems of other libraries, for users of these: CuTe, CUTLASS, oneDNN. No compile path imports them."""
