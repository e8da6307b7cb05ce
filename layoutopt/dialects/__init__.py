"""Dialects, which write planned graphs in ONNX. A new dialect is one file and one line here, or an entry point of a package."""

from layoutopt.dialects.ascend import Ascend
from layoutopt.dialects.functions import Functions
from layoutopt.dialects.lower import Lower
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.onnxruntime import OnnxRuntime
from layoutopt.dialects.ops import Ops
from layoutopt.registry import EntryPoints, Registry, instance_of

_NEEDS = "it has to derive from layoutopt.extend.Dialect"
EXTENSIONS: EntryPoints[Dialect] = EntryPoints("layoutopt.dialects", instance_of(Dialect, _NEEDS))
"""Dialects of installed packages."""

DIALECTS = Registry({dialect.name: dialect for dialect in (Functions(), Ascend(), OnnxRuntime(), Ops())}, EXTENSIONS)

__all__ = ["DIALECTS", "Ascend", "Dialect", "Functions", "Lower", "OnnxRuntime", "Ops"]
