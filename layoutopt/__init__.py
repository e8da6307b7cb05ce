"""layoutopt: a layout-optimisation compiler for ONNX.

    import layoutopt
    result = layoutopt.optimize("model.onnx", target="gpu-hopper")
    result.save("out.onnx")

Names are loaded when they are first used, so importing the package, and `layoutopt --help`, costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layoutopt.version import VERSION

if TYPE_CHECKING:
    from layoutopt.api import Result, optimize
    from layoutopt.cost import CostModel
    from layoutopt.cost_models import load_target, target_names
    from layoutopt.errors import LayoutoptError
    from layoutopt.formats import Conversion, Format, Layout
    from layoutopt.pass_base import Pass, PassContext, Pipeline
    from layoutopt.planner import Plan
    from layoutopt.report import Report
    from layoutopt.verify import Verification, verify_models

__version__ = VERSION

_HOMES = {
    "Conversion": "layoutopt.formats",
    "CostModel": "layoutopt.cost",
    "Format": "layoutopt.formats",
    "Layout": "layoutopt.formats",
    "LayoutoptError": "layoutopt.errors",
    "Pass": "layoutopt.pass_base",
    "PassContext": "layoutopt.pass_base",
    "Pipeline": "layoutopt.pass_base",
    "Plan": "layoutopt.planner",
    "Report": "layoutopt.report",
    "Result": "layoutopt.api",
    "Verification": "layoutopt.verify",
    "load_target": "layoutopt.cost_models",
    "optimize": "layoutopt.api",
    "target_names": "layoutopt.cost_models",
    "verify_models": "layoutopt.verify",
}

__all__ = [
    "Conversion",
    "CostModel",
    "Format",
    "Layout",
    "LayoutoptError",
    "Pass",
    "PassContext",
    "Pipeline",
    "Plan",
    "Report",
    "Result",
    "Verification",
    "__version__",
    "load_target",
    "optimize",
    "target_names",
    "verify_models",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
