"""Dialects, which write planned graphs in ONNX. A new dialect is one file and one line here, or an entry point of a package."""

from layoutopt.dialects.ascend import Ascend
from layoutopt.dialects.functions import Functions
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.onnxruntime import OnnxRuntime
from layoutopt.dialects.ops import Ops, Standard
from layoutopt.registry import EntryPoints, instance_of

_NEEDS = "it has to derive from layoutopt.extend.Dialect"
_BUILT_IN = (Functions(), Ascend(), OnnxRuntime(), Standard(), Ops())
DIALECTS: EntryPoints[Dialect] = EntryPoints(
    "layoutopt.dialects", instance_of(Dialect, _NEEDS), built_in={each.name: each for each in _BUILT_IN}
)

__all__ = ["DIALECTS", "Ascend", "Dialect", "Functions", "OnnxRuntime", "Ops", "Standard"]
