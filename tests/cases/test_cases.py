"""Golden cases: one text file per case, in the folder of the tested pass.

    # the reason for the case
    # constants: w               inputs of the model that are constants with random elements
    # mode: training             inference by default
    # pins: x=NHWC
    # preferred: conv=NCHW8c     the format of the target's kernel, by the op's name; by default NHWC for 1x1, NCHW for others
    # kernels: com.microsoft::Gelu    the ops beyond the ONNX standard for which the dialect has kernels
    # sessions: fast             balanced by default
    # dialect: onnxruntime       for a pass behind the planner: `lower` and the passes of this dialect follow
    # detour: a NHWC             before the pass, a is cast to a format and back for all its readers
    # casts: 2                   the expected number of CastData of activations after all passes
    # weight_casts: 2            the same for constants, in training mode; 0 in inference
    <ir_version: 9, opset_import: ["" : 18]>
    agraph (...) => (...) {...}
    # output
    graph ...

The output is the text form of the graph after the pass, with all passes of the pipeline before it; in the folder `pipeline`
after all passes before lowering. Every case also runs the remaining passes; the results of one of the portable dialects, and of
the dialect of the case if this machine can run it, are compared with the model.
`pytest tests/cases --update-golden` writes the outputs.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from layoutopt import inference, onnx_io
from layoutopt.dialects import DIALECTS, Dialect
from layoutopt.driver.job import lowered_passes
from layoutopt.formats import Format
from layoutopt.ir import Graph, Op, Signature, Slot, Storage, Value
from layoutopt.ir.graph import insert_cast, is_cast, to_text
from layoutopt.ops import OperandFormats, rule_of
from layoutopt.ops.view import View
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass, PassContext, Pipeline, Sessions
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.testing.rules import lower
from layoutopt.verification import verify_models

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/*.txt"))
PORTABLE = ("functions", "ops")
OPTIONS = (
    *("constants", "mode", "sessions", "pins", "preferred"),
    *("kernels", "dialect", "detour", "casts", "weight_casts"),
)
X, Y = Slot("in", 0), Slot("out", 0)


@dataclass(frozen=True)
class PreferenceCosts:
    """Kernels for NHWC in 1x1 convolutions and NCHW in others, unless an option names another format."""

    preferred: dict[str, Format] = field(default_factory=dict)
    name: str = "preferences"
    dialect: str = "ops"

    def format_of(self, op: Op) -> Format | None:
        rule, w = rule_of(op), op.inputs[1] if len(op.inputs) > 1 else None
        if op.name in self.preferred:
            return self.preferred[op.name]
        if rule is None or rule.family != "convolution" or w is None or w.shape is None:
            return None
        return Format.parse("NHWC" if w.shape[2:] == (1, 1) else "NCHW")

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        format = self.format_of(op)
        return [] if format is None else [{X: format, Y: format}]

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        rule, format = rule_of(op), self.format_of(op)
        if isinstance(rule, View):
            return 0.0
        ends = (*signature.inputs[:1], *signature.outputs[:1])
        satisfied = format is None or all(storage is None or storage.format == format for storage in ends)
        return 1.0 if satisfied else 10.0

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        same = src.format.key(value.shape) == dst.format.key(value.shape) and src.padding <= dst.padding
        return 0.0 if same else 2.0


@dataclass(frozen=True)
class Case:
    """A parsed file."""

    comments: list[str]
    text: str
    expected: str
    options: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> "Case":
        """Split a file into its comments, its model and the expected output."""
        source, _, expected = path.read_text().partition("# output\n")
        lines = source.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        options: dict[str, list[str]] = {}
        for line in comments:
            key, colon, value = line.removeprefix("# ").partition(": ")
            if colon and key in OPTIONS:
                options[key] = value.split()
        return cls(comments, "\n".join(line for line in lines if not line.startswith("#")), expected, options)

    def formats(self, option: str) -> dict[str, Format]:
        """The names and formats of an option."""
        pairs = (item.split("=") for item in self.options.get(option, []))
        return {name: Format.parse(format) for name, format in pairs}

    @property
    def mode(self) -> Mode:
        """The mode of the case; inference by default."""
        return "training" if self.options.get("mode") == ["training"] else "inference"

    @property
    def sessions(self) -> Sessions:
        """The preference for sessions of the case; balanced by default."""
        return "fast" if self.options.get("sessions") == ["fast"] else "balanced"

    def model(self) -> onnx.ModelProto:
        """The model, with random constants."""
        model = onnx.parser.parse_model(self.text)
        for name in self.options.get("constants", []):
            info = next(each for each in model.graph.input if each.name == name)
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            array = np.random.default_rng(zlib.crc32(name.encode())).uniform(0.5, 1.5, shape)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(dtype), name))
            model.graph.input.remove(info)
        onnx.checker.check_model(model, full_check=True)
        return model


def detour(graph: Graph, name: str, format: Format) -> None:
    """Insert a cast of a value to a format, and a cast back, before its readers."""
    value = graph.value(name)
    uses = graph.uses(value)
    copy = insert_cast(graph, value, Storage(format))
    back = insert_cast(graph, copy, Storage(value.storage.format))
    graph.replace_uses(value, back, uses)


def run(steps: Sequence[Pass | Dialect], graph: Graph, context: PassContext) -> Graph:
    """Run passes, and the lowering to a dialect; return the resulting graph."""
    for step in steps:
        if isinstance(step, Dialect):
            context.block = step.block(graph)
            graph = step.lower(graph)
        else:
            Pipeline((step,)).run(graph, context)
    assert not context.reason_to_keep
    return graph


@pytest.mark.parametrize("path", CASES, ids=[f"{path.parent.name}/{path.stem}" for path in CASES])
def test_case(path: Path, update_golden: bool) -> None:
    case, name = Case.read(path), path.parent.name
    model = case.model()
    steps: list[Pass | Dialect] = [*default_pipeline(case.mode).passes]
    dialect = DIALECTS[case.options["dialect"][0]] if "dialect" in case.options else None
    if dialect is not None:
        steps += [dialect, *lowered_passes(dialect)]
    names = ["lower" if isinstance(step, Dialect) else step.name for step in steps]
    positions = [position for position, each in enumerate(names) if each == name]
    position = positions[0] if positions else len(steps)
    assert positions or name == "pipeline", f"there is no pass {name}"
    graph = inference.lift(onnx_ir.serde.deserialize_model(model))
    pins = case.formats("pins")
    context = PassContext(
        PreferenceCosts(case.formats("preferred")),
        case.mode,
        pins,
        kernels=frozenset(case.options.get("kernels", [])),
        keeps_qdq_groups=dialect is not None and dialect.keeps_qdq_groups,
        sessions=case.sessions,
    )
    current = run(steps[:position], graph, context)
    if "detour" in case.options:
        target, format = case.options["detour"]
        detour(graph, target, Format.parse(format))
    current = run(steps[position : position + 1], current, context)
    output = to_text(current)
    if update_golden:
        path.write_text("\n".join([*case.comments, case.text.strip(), "# output", output]))
    else:
        assert output == case.expected
    current = run(steps[position + 1 :], current, context)
    if dialect is not None and (not dialect.is_native or context.block in (0, blocked_channels())):
        verdict = verify_models(model.SerializeToString(), onnx_io.to_bytes(onnx_io.emit(current)), pins=pins)
        assert verdict.status == "passed", f"{dialect.name}: {verdict.reason}"
    sources = [op.inputs[0] for each in graph.regions() for op in each.ops if is_cast(op)]
    of_weights = sum(source is not None and source.is_constant for source in sources)
    assert [str(of_weights)] == case.options.get("weight_casts", ["0"])
    assert case.options.get("casts", [str(len(sources) - of_weights)]) == [str(len(sources) - of_weights)]
    portable = PORTABLE[zlib.crc32(f"{name}/{path.stem}".encode()) % len(PORTABLE)]
    emitted = onnx_io.to_bytes(onnx_io.emit(lower(graph, portable)))
    verdict = verify_models(model.SerializeToString(), emitted, pins=pins)
    assert verdict.status == "passed", f"{portable}: {verdict.reason}"
