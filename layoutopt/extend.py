"""The interface for packages that extend layoutopt: everything that an extension imports is a name of this module.

An extension is an object that an installed package declares as an entry point. layoutopt loads the entry points of a group
when it first needs them. A command is then run as before: no option names the package.

| group | the object | part |
|---|---|---|
| `layoutopt.ops` | a class that derives from `LayoutRule`, or a module that registers such classes | ops |
| `layoutopt.patterns` | a class that derives from `FusionPattern`, or a module that registers such classes | fusion pattern |
| `layoutopt.passes` | a class that derives from `Pass`, or an instance of one; `before` or `after` sets its position | pass |
| `layoutopt.dialects` | a class that derives from `Dialect`, or an instance of one | output form of a plan |
| `layoutopt.formats` | the result of `format_system` | names of memory formats |
| `layoutopt.cost_models` | the path of a target file, a `CostModel`, or a function that returns either | hardware target |
| `layoutopt.runtimes` | the path of a runtime file, or a `RuntimeSpec` | program that runs the file |
| `layoutopt.engines` | a class that derives from `Engine`, or an instance of one | adapter of that program on this machine |

The names of this module, their signatures and the groups follow semantic versioning: a release that removes or changes one
has a new major version (before 1.0 a new minor version), and the change log lists it. The same applies to the names of the
package's root and of `layoutopt.testing`, which has the laws of extensions. Names of all other modules may change in any
release. docs/extending.md has an example of each group.
"""

from layoutopt.cost import CostModel
from layoutopt.cost_models import RooflineModel, RuntimeSpec, load_target
from layoutopt.dialects.functions import Functions, Label
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.ops import Ops
from layoutopt.errors import ExtensionError, FormatError, LayoutoptError, ModelError, TargetError
from layoutopt.formats import Entry, Extent, Format, Layout, Part, Shape, as_shape, format_system, lookup
from layoutopt.ir.graph import Graph, Use, to_text
from layoutopt.ir.types import (
    Array,
    ArrayData,
    Attribute,
    DType,
    Op,
    OpaqueType,
    Padding,
    Signature,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ops import (
    Inapplicable,
    LayoutRule,
    OperandFormats,
    X,
    Y,
    estimated_volume,
    register,
    rule_of,
    signature_of,
)
from layoutopt.ops.along_axis import OneAxis
from layoutopt.ops.axiswise import Axes, AxiswiseRule, Elementwise, IterationOrder
from layoutopt.ops.base import lower_directly
from layoutopt.ops.builder import OpBuilder, write_plain
from layoutopt.ops.builder import OpBuilder as Builder
from layoutopt.ops.contraction import ContractionModes
from layoutopt.ops.interfaces import (
    Affine,
    LinearMap,
    Pads,
)
from layoutopt.ops.shape_functions import Node, Operand, TypeFunction, type_function
from layoutopt.ops.signatures import (
    PADDING_KEPT,
    PADDING_REFUSED,
    PaddingTransfer,
    chosen_signature,
    present,
    present_type,
    rank_of,
    shape_of,
)
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Pass, PassContext, Pipeline
from layoutopt.patterns import FusionPattern, Match, register_pattern
from layoutopt.patterns.base import multiple, number, other_input, result_of
from layoutopt.runtime.custom_ops import kernel_libraries
from layoutopt.runtime.engines import Engine, ExecutedLayer, LoadedModel

__all__ = [
    "PADDING_KEPT",
    "PADDING_REFUSED",
    "Affine",
    "Array",
    "ArrayData",
    "Attribute",
    "Axes",
    "AxiswiseRule",
    "Builder",
    "ContractionModes",
    "CostModel",
    "DType",
    "Dialect",
    "Elementwise",
    "Engine",
    "Entry",
    "ExecutedLayer",
    "ExtensionError",
    "Extent",
    "Format",
    "FormatError",
    "Functions",
    "FusionPattern",
    "Graph",
    "Inapplicable",
    "IterationOrder",
    "Label",
    "Layout",
    "LayoutRule",
    "LayoutoptError",
    "LinearMap",
    "LoadedModel",
    "Match",
    "ModelError",
    "Node",
    "OneAxis",
    "Op",
    "OpBuilder",
    "OpaqueType",
    "Operand",
    "OperandFormats",
    "Ops",
    "Padding",
    "PaddingTransfer",
    "Pads",
    "Part",
    "Pass",
    "PassContext",
    "Pipeline",
    "RooflineModel",
    "RuntimeSpec",
    "Shape",
    "Signature",
    "Slot",
    "Storage",
    "TargetError",
    "TensorType",
    "TypeFunction",
    "Use",
    "Value",
    "X",
    "Y",
    "as_shape",
    "chosen_signature",
    "default_pipeline",
    "estimated_volume",
    "format_system",
    "kernel_libraries",
    "load_target",
    "lookup",
    "lower_directly",
    "multiple",
    "number",
    "other_input",
    "present",
    "present_type",
    "rank_of",
    "register",
    "register_pattern",
    "result_of",
    "rule_of",
    "shape_of",
    "signature_of",
    "to_text",
    "type_function",
    "write_plain",
]
