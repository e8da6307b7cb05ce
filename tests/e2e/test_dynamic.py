"""Symbolic batch, height and width: planned like the same network with numbers, and right at every size."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import dynamic
import numpy as np
import onnx
import onnxruntime
import pytest

import layoutopt
from layoutopt.report import Report

PLANNED = (1, 224, 224)
SIZES = ((1, 224, 224), (2, 160, 256), (3, 97, 131), (5, 64, 96), (1, 33, 320))
WAYS = (("gpu-hopper", None), ("cpu", None), ("cpu-avx512", "functions"), ("ascend-910b", "ops"))
QUICK = [("mobilenetv2", *WAYS[0]), ("mobilenetv2", *WAYS[1]), ("segformer_b0_dynamo", *WAYS[0])]
MERGED = {"cpu": 3, "cpu-avx512": 3, "ascend-910b": -7}
"""How many more casts segformer has with names than with numbers: maps of its head are merged past Reshapes with constant
targets only, so with numbers it is another graph before it is planned. On GPUs the casts are the same."""
SYMBOLS = ("batch only", "image only", "both")


@cache
def session(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


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


def anchors(report: Report) -> dict[str, list[str | None]]:
    """In which formats the convolutions work."""
    convolutions = [op for op in report.ops if op.kind.endswith("Conv")]
    return {op.name.replace("__moved", ""): [*op.inputs[:1], *op.outputs] for op in convolutions}


def planned_alike(name: str, target: str, dialect: str | None) -> None:
    model = dynamic.load(name)
    dims = dict(zip(dynamic.names(model), PLANNED, strict=True))
    result = layoutopt.optimize(model, target, dialect=dialect, dims=dims)
    report = result.report
    static = layoutopt.optimize(dynamic.fixed(model, *PLANNED), target, dialect=dialect, verify=False).report
    assert report.changed and static.changed
    assert report.plan is not None and static.plan is not None
    more = MERGED.get(target, 0) if name.startswith("segformer") else 0
    casts, *others = moves(static)
    assert moves(report) == (casts + more, *others)
    # For the same reason the static network may have fewer convolutions.
    ours, theirs = anchors(report), anchors(static)
    assert theirs and {name: ours.get(name) for name in theirs} == theirs
    assert report.plan.gap == 0
    assert report.verification.status == "passed"
    assert len(report.verification.sizes) == 3
    assert_right(model, result.proto, SIZES)


@pytest.mark.parametrize(("name", "target", "dialect"), QUICK)
def test_a_network_is_planned_as_with_numbers(name: str, target: str, dialect: str | None) -> None:
    planned_alike(name, target, dialect)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "way"), list(product(dynamic.NAMES, WAYS)))
def test_every_network_is_planned_as_with_numbers(name: str, way: tuple[str, str | None]) -> None:
    planned_alike(name, *way)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "symbols", "target"), list(product(dynamic.NAMES, SYMBOLS, ("gpu-hopper", "cpu"))))
def test_some_dimensions_are_symbolic(name: str, symbols: str, target: str) -> None:
    """The batch alone, or height and width alone, over a range."""
    model = dynamic.load(name)
    batch, height, width = dynamic.names(model)
    numbers = {"batch only": {2: 96, 3: 160}, "image only": {0: 2}, "both": {}}[symbols]
    dynamic.rename(model, numbers)
    ranges = {batch: (1, 8), height: (64, 256), width: (64, 512)}
    asked = {name: range for name, range in ranges.items() if name in dynamic.names(model)}
    result = layoutopt.optimize(model, target, dims=asked)
    assert result.report.changed
    assert result.report.verification.status == "passed"
    sizes = [tuple(numbers.get(axis, extent) for axis, extent in zip((0, 2, 3), size, strict=True)) for size in SIZES]
    assert_right(model, result.proto, sizes)


def test_a_range_is_planned_for_and_remembered() -> None:
    """Prices are means over the range, and the file says what it was planned for."""
    model = dynamic.load("mobilenetv2")
    small, large, both = (
        layoutopt.optimize(model, "gpu-hopper", dims={"batch": batch, "height": 224, "width": 224}, verify=False)
        for batch in (1, 64, (1, 64))
    )
    assert small.plan is not None and large.plan is not None and both.plan is not None
    assert small.plan.seconds < both.plan.seconds < large.plan.seconds
    assert [(each.name, each.low, each.high, each.assumed) for each in both.report.dims] == [
        ("batch", 1, 64, False),
        ("height", 224, 224, False),
        ("width", 224, 224, False),
    ]
    again = layoutopt.optimize(both.proto, "gpu-hopper", dims={"batch": (1, 64), "height": 224, "width": 224})
    assert not again.report.changed
    other = layoutopt.optimize(both.proto, "gpu-hopper", dims={"batch": 1, "height": 224, "width": 224}, verify=False)
    assert other.report.reason != again.report.reason
