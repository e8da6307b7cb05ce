"""Layout systems of other libraries, for people who know them: CuTe, CUTLASS, oneDNN. No compile path imports them."""
