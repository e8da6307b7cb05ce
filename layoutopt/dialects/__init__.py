"""How a planned graph is spelled in ONNX. A new dialect is one file and one line here."""

from layoutopt.dialects.ascend import Ascend
from layoutopt.dialects.functions import Functions
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.onnxruntime import OnnxRuntime
from layoutopt.dialects.ops import Ops

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (Functions(), Ascend(), OnnxRuntime(), Ops())}

__all__ = ["DIALECTS", "Ascend", "Dialect", "Functions", "OnnxRuntime", "Ops"]
