"""Dialects, which write planned graphs in ONNX. A new dialect is one file and one line here, or an entry point of a package."""

from layoutopt.dialects.ascend import Ascend
from layoutopt.dialects.functions import Functions
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.onnxruntime import OnnxRuntime
from layoutopt.dialects.ops import Ops, Standard
from layoutopt.registry import EntryPoints, Registry, instance_of

_NEEDS = "it has to derive from layoutopt.extend.Dialect"
EXTENSIONS: EntryPoints[Dialect] = EntryPoints("layoutopt.dialects", instance_of(Dialect, _NEEDS))
"""Dialects of installed packages."""

_BUILT_IN = (Functions(), Ascend(), OnnxRuntime(), Standard(), Ops())
DIALECTS = Registry({dialect.name: dialect for dialect in _BUILT_IN}, EXTENSIONS)

__all__ = ["DIALECTS", "Ascend", "Dialect", "Functions", "OnnxRuntime", "Ops", "Standard"]
