"""layoutopt: a layout-optimisation compiler for ONNX.

    import layoutopt
    result = layoutopt.optimize("model.onnx", target="gpu-hopper")
    result.save("out.onnx")

Modules are imported when a name is first used, so that `import layoutopt` and `layoutopt --help` are fast.
"""

import logging
from importlib import import_module
from os.path import dirname, isdir, join
from typing import TYPE_CHECKING, Any

from layoutopt.errors import (
    ArgumentError,
    CertificateError,
    DimensionError,
    ExtensionError,
    FormatError,
    InputError,
    InvariantError,
    LayoutoptError,
    ModelError,
    OutputError,
    PinError,
    TargetError,
    UnverifiedError,
    VerificationError,
)
from layoutopt.runtime.telemetry import disable_telemetry
from layoutopt.version import VERSION

if TYPE_CHECKING:
    from layoutopt.api import optimize
    from layoutopt.batch.run import optimize_many
    from layoutopt.batch.task import Outcome
    from layoutopt.cost import CostModel
    from layoutopt.cost_models import load_target, target_names
    from layoutopt.driver.result import Result
    from layoutopt.explanation import Explanation, explain
    from layoutopt.formats import Conversion, Format, Layout
    from layoutopt.passes.base import Pass, PassContext, Pipeline
    from layoutopt.planner import Plan
    from layoutopt.report.schema import Report
    from layoutopt.torch_export import export
    from layoutopt.verification import Verification, verify_models

__version__ = VERSION

if not isdir(join(__path__[0], "passes")):  # a checkout: passes/ and cost_models/ are folders of its root
    __path__.append(dirname(__path__[0]))

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the program configures logging
disable_telemetry()  # before any module of layoutopt imports onnxruntime

_MODULES = {
    "Conversion": "layoutopt.formats",
    "CostModel": "layoutopt.cost",
    "Explanation": "layoutopt.explanation",
    "Format": "layoutopt.formats",
    "Layout": "layoutopt.formats",
    "Outcome": "layoutopt.batch.task",
    "Pass": "layoutopt.passes.base",
    "PassContext": "layoutopt.passes.base",
    "Pipeline": "layoutopt.passes.base",
    "Plan": "layoutopt.planner",
    "Report": "layoutopt.report.schema",
    "Result": "layoutopt.driver.result",
    "Verification": "layoutopt.verification",
    "explain": "layoutopt.explanation",
    "export": "layoutopt.torch_export",
    "load_target": "layoutopt.cost_models",
    "optimize": "layoutopt.api",
    "optimize_many": "layoutopt.batch.run",
    "target_names": "layoutopt.cost_models",
    "verify_models": "layoutopt.verification",
}

__all__ = [
    "ArgumentError",
    "CertificateError",
    "Conversion",
    "CostModel",
    "DimensionError",
    "Explanation",
    "ExtensionError",
    "Format",
    "FormatError",
    "InputError",
    "InvariantError",
    "Layout",
    "LayoutoptError",
    "ModelError",
    "Outcome",
    "OutputError",
    "Pass",
    "PassContext",
    "PinError",
    "Pipeline",
    "Plan",
    "Report",
    "Result",
    "TargetError",
    "UnverifiedError",
    "Verification",
    "VerificationError",
    "__version__",
    "explain",
    "export",
    "load_target",
    "optimize",
    "optimize_many",
    "target_names",
    "verify_models",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
