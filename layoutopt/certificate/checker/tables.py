"""The operators that have terms by their name alone; others have definitions, and the rest is refused."""

_UNARY = """
Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid IsInf IsNaN LeakyRelu Log
Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu
"""
_NARY = "Add And Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or PRelu Pow Sub Where Xor"
_GENERAL = """
ArgMax ArgMin ConvInteger ConvTranspose CumSum DepthToSpace DequantizeLinear DynamicQuantizeLinear Einsum Expand GRU Gather
GatherElements GatherND GlobalLpPool InstanceNormalization LRN LSTM LpPool MatMulInteger QLinearConv QLinearMatMul
QuantizeLinear Range Resize Size SpaceToDepth Split Tile TopK
"""
UNARY, NARY = frozenset(_UNARY.split()), frozenset(_NARY.split())
COMMUTATIVE = frozenset(["Add", "And", "Equal", "Mul", "Or", "Xor"])
PREDICATES = frozenset(["Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"])
REDUCTIONS = frozenset(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
RANDOM = frozenset(["RandomUniform"])
SAME_IN_BLOCKS = UNARY | NARY | {"Concat", "Gelu", "HardSwish", "Identity", "Sum"}
"""Operators that treat a blocked array as an image of four axes, and give the same result as on the unblocked image."""

GENERAL = frozenset(_GENERAL.split())
"""Operators that are proven where both models have them, with equal attributes and operands."""
