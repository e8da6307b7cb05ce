"""The interface for packages that extend layoutopt: everything that an extension imports is a name of this module.

An extension is an object that an installed package declares as an entry point. layoutopt loads the entry points of a group
when it first needs them. A command is then run as before: no option names the package.

| group | the object | part |
|---|---|---|
| `layoutopt.ops` | a class that derives from `LayoutRule`, or a module that registers such classes | layout rule |
| `layoutopt.patterns` | a class that derives from `FusionPattern`, or a module that registers such classes | fusion pattern |
| `layoutopt.passes` | a class that derives from `Pass`, or an instance of one; `before` or `after` gives its place | pass |
| `layoutopt.dialects` | a class that derives from `Dialect`, or an instance of one | way to write formats in ONNX |
| `layoutopt.formats` | the result of `format_system` | names of memory formats |
| `layoutopt.cost_models` | the path of a target file, a `CostModel`, or a function that returns either | hardware target |

The names of this module, their signatures and the groups follow semantic versioning: a release that removes or changes one
has a new major version (before 1.0 a new minor version), and the change log lists it. The same holds for the names of the
package's root and of `layoutopt.testing`, which has the laws that extensions have to meet. Names of all other modules may
change in any release. docs/extending.md has an example of each group.
"""

from layoutopt.cost import CostModel
from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.functions import Functions, Label
from layoutopt.dialects.lowering import Dialect, write_plain
from layoutopt.errors import ExtensionError, FormatError, LayoutoptError, ModelError, TargetError
from layoutopt.formats import Entry, Format, Layout, Part, Shape, format_system, lookup
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.text import to_text
from layoutopt.ir.types import (
    Array,
    ArrayData,
    Attribute,
    DType,
    Lanes,
    Op,
    OpaqueType,
    Signature,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ops import Inapplicable, Known, LayoutRule, X, Y, elements, register, rule_of, signature_of
from layoutopt.ops.axis import OneAxis
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder
from layoutopt.ops.passage import KEPT, NO_LANES, Passage
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.patterns import Idiom as FusionPattern
from layoutopt.patterns import Match
from layoutopt.patterns import idiom as register_pattern
from layoutopt.patterns.base import multiple, number, only_reader, other_input, result_of
from layoutopt.runtime.custom_ops import kernel_libraries

__all__ = [
    "KEPT",
    "NO_LANES",
    "Array",
    "ArrayData",
    "Attribute",
    "Axes",
    "AxiswiseRule",
    "Builder",
    "CostModel",
    "DType",
    "Dialect",
    "Entry",
    "ExtensionError",
    "Format",
    "FormatError",
    "Functions",
    "FusionPattern",
    "Graph",
    "Inapplicable",
    "IterationOrder",
    "Known",
    "Label",
    "Lanes",
    "Layout",
    "LayoutRule",
    "LayoutoptError",
    "Match",
    "ModelError",
    "OneAxis",
    "Op",
    "OpBuilder",
    "OpaqueType",
    "Part",
    "Pass",
    "PassContext",
    "Passage",
    "Pipeline",
    "RooflineModel",
    "Shape",
    "Signature",
    "Slot",
    "Storage",
    "TargetError",
    "TensorType",
    "Use",
    "Value",
    "X",
    "Y",
    "default_pipeline",
    "elements",
    "format_system",
    "kernel_libraries",
    "load_target",
    "lookup",
    "multiple",
    "number",
    "only_reader",
    "other_input",
    "register",
    "register_pattern",
    "result_of",
    "rule_of",
    "signature_of",
    "to_text",
    "write_plain",
]
