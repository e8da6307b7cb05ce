"""Symbolic batch, height and width: planned like the same network with numbers, and right at every size.

resnet50 and mobilenetv2 are those of the zoo with names for dimensions. segformer_b0 is traced with dynamic sizes, since its
Reshapes compute them: in `networks`, by torch.onnx of torch 2.13 with either exporter, from transformers 5.23, weights emptied
like those of the zoo. torch.export gives dimensions names of its own.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
import zoo
from onnx import numpy_helper
from parsed_models import parsed
from tiers import quick_first

import layoutopt
from layoutopt.report.schema import Report
from layoutopt.runtime.session import Session

FOLDER = Path(__file__).parent / "networks"
ZOO = ("resnet50", "mobilenetv2")
EXPORTED = tuple(sorted(path.stem for path in FOLDER.glob("*.onnx")))
NAMES = (*ZOO, *EXPORTED)


def load(name: str) -> onnx.ModelProto:
    """A network whose input is (batch, 3, height, width), all but the channels symbolic."""
    if name in ZOO:
        return with_names(zoo.load(name))
    return zoo.filled(onnx.load(FOLDER / f"{name}.onnx"))


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """A convolutional classifier with names for dimensions; the batch of 1 that its Reshapes have is copied instead."""
    rename(model, {0: "batch", 2: "height", 3: "width"})
    reshapes = [node for node in model.graph.node if node.op_type == "Reshape"]
    for node in reshapes:
        del node.attribute[:]  # allowzero, by which a 0 would not be a copy
    targets = {node.input[1] for node in reshapes}
    for tensor in model.graph.initializer:
        if tensor.name in targets:
            target = np.array(numpy_helper.to_array(tensor))
            assert target[0] == 1
            target[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(target, tensor.name))
    return model


def rename(model: onnx.ModelProto, extents: Mapping[int, int | str]) -> onnx.ModelProto:
    """Set extents of the input to names or numbers, and remove the declared shapes of all other values."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for axis, extent in extents.items():
        if isinstance(extent, int):
            dims[axis].dim_value = extent
        else:
            dims[axis].dim_param = extent
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def names(model: onnx.ModelProto) -> tuple[str, str, str]:
    """The names of the batch, height and width dimensions of a network."""
    batch, _, height, width = (dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim)
    return batch, height, width


PLANNED = (1, 224, 224)
SIZES = ((2, 160, 256), (3, 97, 131), (1, 33, 320))
WAYS = (("gpu-hopper", "functions"), ("cpu", None), ("cpu-avx512", "functions"), ("ascend-910b", "ops"))
QUICK = [("mobilenetv2", *WAYS[0])]
EVERY = [(name, *way) for name, way in product(NAMES, WAYS)]
FRACTALS = {"ascend-910b": -8}
"""How many more moves segformer has where the number of tokens has no number: FRACTAL_NZ has blocks of 16 of them, so the
products of attention take plain operands. Where no kernel prefers such blocks, there are as many."""


@cache
def session(model: bytes) -> Session:
    return Session(model)


def run(model: bytes, size: Sequence[int]) -> list[np.ndarray]:
    batch, height, width = size
    image = np.random.default_rng(sum(size)).normal(size=(batch, 3, height, width)).astype(np.float32)
    found = session(model)
    return list(found.run(None, {found.get_inputs()[0].name: image}))


def assert_right(original: onnx.ModelProto, rewritten: onnx.ModelProto, sizes: Sequence[Sequence[int]]) -> None:
    """Equal outputs at every size; declared dimensions are true."""
    before, after = (model.SerializeToString() for model in (original, rewritten))
    for size in sizes:
        for want, got in zip(run(before, size), run(after, size), strict=True):
            assert want.shape == got.shape
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * float(np.abs(want).max()), err_msg=str(size))
    session.cache_clear()


def moves(report: Report) -> tuple[int, int, int]:
    return report.after.casts, report.after.transposes, report.after.weight_casts


def convolution_formats(report: Report) -> dict[str, list[str | None]]:
    """The formats of the convolutions in the plan."""
    convolutions = [op for op in report.ops if op.kind.endswith("Conv")]
    return {op.name.replace("__moved", ""): [*op.inputs[:1], *op.outputs] for op in convolutions}


@cache
def with_numbers(name: str, target: str, dialect: str | None) -> Report:
    model = rename(load(name), dict(zip((0, 2, 3), PLANNED, strict=True)))
    return layoutopt.optimize(model, target, dialect=dialect, verify=False).report


def assert_planned_alike(report: Report, static: Report, more: int = 0) -> None:
    """Assert that two plans have the same formats of convolutions and, apart from `more`, the same number of moves."""
    assert report.changed and static.changed
    assert sum(moves(report)) == sum(moves(static)) + more
    assert more or moves(report) == moves(static)
    assert convolution_formats(static) and convolution_formats(report) == convolution_formats(static)
    assert report.plan is not None and report.plan.gap == 0


@pytest.mark.parametrize(("name", "target", "dialect"), quick_first(QUICK, EVERY))
def test_a_network_is_planned_as_with_numbers(name: str, target: str, dialect: str | None) -> None:
    model = load(name)
    dims = dict(zip(names(model), PLANNED, strict=True))
    result = layoutopt.optimize(model, target, dialect=dialect, dims=dims)
    report, more = result.report, FRACTALS.get(target, 0) if name.startswith("segformer") else 0
    assert_planned_alike(report, with_numbers(name, target, dialect), more)
    assert report.verification.status == "passed"
    assert len(report.verification.sizes) == 3
    assert_right(model, result.proto, SIZES)


SMALL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch,32,height,width] x) => (float[batch,32,height,width] y)
{ a = Conv <pads = [1,1,1,1]> (x, w) b = Relu (a) c = Conv <pads = [1,1,1,1]> (b, w) d = Tanh (c) y = Conv (d, v) }"""


def test_a_range_is_planned_for_and_remembered() -> None:
    """Prices are means over the range, and the file records the range."""
    model = parsed(SMALL, w=(32, 32, 3, 3), v=(32, 32, 1, 1))

    def planned(model: onnx.ModelProto, batch: int | tuple[int, int], verify: bool = False) -> layoutopt.Result:
        dims = {"batch": batch, "height": 56, "width": 56}
        return layoutopt.optimize(model, "gpu-hopper", runtime="compiler", dims=dims, verify=verify)

    small, large, both = (planned(model, batch) for batch in (1, 64, (1, 64)))
    assert small.plan.seconds < both.plan.seconds < large.plan.seconds
    assert [(each.name, each.low, each.high, each.assumed) for each in both.report.dims] == [
        ("batch", 1, 64, False),
        ("height", 56, 56, False),
        ("width", 56, 56, False),
    ]
    again = planned(both.proto, (1, 64), verify=True)
    assert not again.report.changed
    assert planned(both.proto, 1).report.reason != again.report.reason
