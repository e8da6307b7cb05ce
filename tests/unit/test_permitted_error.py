"""Verification accepts the rounding of any legal algorithm, also where values do not move, and refuses wrong weights."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt import onnx_io
from layoutopt.dialects.onnxruntime.winograd import (
    MACHINE_RATES,
    Algorithm,
    Constants,
    MachineRates,
    Site,
    Tiles,
)
from layoutopt.errors import VerificationError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Value
from layoutopt.report.facts import warnings_of
from layoutopt.runtime.session import Session
from layoutopt.verification.file_comparison import verify_files
from layoutopt.verification.perturbation import COHERENT, perturb_sums

UNIT = 2.0**-24
CHANNELS, SIDE = 32, 16
BODIES = {
    "alone": "y = Conv <pads = [1, 1, 1, 1]> (x, w)",
    "saturated": "c = Conv <pads = [1, 1, 1, 1]> (x, w) s = Clip (c, low, high) y = Conv (s, v)",
    "split": "c = Conv <pads = [1, 1, 1, 1]> (x, w) a, b = Split <axis = 1, num_outputs = 2> (c) p = Mul (a, b) y = Relu (p)",
}


def network(body: str, filters: Array) -> onnx.ModelProto:
    """x -> body -> y, with the constants w (3x3), v (1x1), low and high."""
    shape = f"float[1,{CHANNELS},{SIDE},{SIDE}]"
    parsed = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g ({shape} x) => ({shape} y) {{ {body} }}'
    )
    parsed.graph.output[0].type.tensor_type.ClearField("shape")
    tensors = {"w": filters, "v": filters[:, :, :1, :1], "low": np.float32(0), "high": np.float32(0.1)}
    parsed.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), name) for name, each in tensors.items())
    return parsed


def filters_of(kind: str) -> Array:
    """Filters of random, of equal, or of cancelling elements."""
    shape = (CHANNELS, CHANNELS, 3, 3)
    if kind == "equal":
        return np.full(shape, 0.021, np.float32)
    random = (np.random.default_rng(0).normal(size=shape) / 17).astype(np.float32)
    if kind == "cancelling":
        random[:, 1::2] = -random[:, ::2]
    return random


@pytest.fixture
def prefers_winograd(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = MachineRates(flops=1e6, min_speedup=1e-6, min_measured_speedup=1e-6)
    for block in (8, 16):
        monkeypatch.setitem(MACHINE_RATES, block, rates)


@pytest.mark.usefixtures("prefers_winograd")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", ["random", "equal", "cancelling"])
def test_winograd_is_accepted_and_one_weight_by_one_percent_is_not(kind: str, body: str, tmp_path: Path) -> None:
    model = network(BODIES[body], filters_of(kind))
    x = np.full((1, CHANNELS, SIDE, SIDE), 0.3, np.float32)
    inputs = {"x": x if kind != "random" else np.random.default_rng(1).normal(size=x.shape).astype(np.float32)}
    result = layoutopt.optimize(model, "cpu", measure=False, calibrate=False, inputs=inputs, max_growth=100)
    assert any("/winograd/" in node.name for node in result.proto.graph.node)
    assert result.report.verification.status == "passed"
    wrong = filters_of(kind)
    wrong[3, 5, 1, 1] *= 1.01
    given, other = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(network(BODIES[body], wrong), given)
    result.save(other)
    assert verify_files(given, other).status == "failed"


@pytest.mark.parametrize("kind", ["random", "equal", "cancelling"])
@pytest.mark.parametrize("seed", [7, COHERENT])
def test_sums_move_by_the_permitted_error(kind: str, seed: int) -> None:
    model = network(BODIES["alone"], filters_of(kind))
    x = np.full((1, CHANNELS, SIDE, SIDE), 0.3, np.float32)
    plain, magnitudes = (
        run(network(BODIES["alone"], each), x) for each in (filters_of(kind), np.abs(filters_of(kind)))
    )
    moved = run(perturb_sums(model, seed, {"y": 3.0}), x) - plain
    own = 17 / 3 * np.abs(plain)
    bound = UNIT * (5 * own if seed == COHERENT else 3**0.5 * 0.5 * (3 * magnitudes + own))
    assert np.all(np.abs(moved) <= bound * 1.01 + 2 * UNIT * np.abs(plain))
    assert np.abs(moved).max() >= 0.9 * bound.max()


def run(model: onnx.ModelProto, x: Array) -> Array:
    (y,) = Session(model.SerializeToString(), is_optimised=False).run(None, {"x": x})
    return np.asarray(y)


@pytest.mark.parametrize(
    "op", ["LayerNormalization <axis = -1> (x, w)", "MatMul (x, x)", "ReduceMean (x, k)", "Softmax (m)"]
)
@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
def test_every_type_is_perturbed_by_its_own_unit(op: str, dtype: str) -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    body = "m = MatMul (x, x) k = Constant <value_ints = [1]> ()"
    given = f"{dtype}[8,8] x, {dtype}[8] w"
    model, moved = (
        onnx.parser.parse_model(f"{header} g ({given}) => ({dtype} y) {{ {body} y = {op} }}") for _ in range(2)
    )
    for each in (model, moved):
        each.graph.output[0].type.tensor_type.ClearField("shape")
    elements = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    feed = {"x": np.random.default_rng(0).normal(size=(8, 8)).astype(elements), "w": np.ones(8, elements)}
    a, b = (
        Session(each.SerializeToString(), is_optimised=False).run(None, feed)[0].astype(np.float64)
        for each in (model, perturb_sums(moved, 3, {}))
    )
    eps = float(np.finfo(elements).eps)
    assert 0.1 * eps < np.abs(a - b).max() / np.abs(a).max() < 64 * eps


TWO = "c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (c) y = Conv <pads = [1, 1, 1, 1]> (r, w)"


@pytest.mark.usefixtures("prefers_winograd")
@pytest.mark.parametrize("faulty", ["one transform", "all transforms", "weight"])
def test_only_an_inexact_rewrite_that_differs_is_left_out(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong Winograd transform is left out where it differs, with one line; a wrong weight remains without it: refused."""
    if faulty == "one transform":
        filters = Constants.filter

        def filter(self: Constants, site: Site, tiles: tuple[Tiles, Tiles], component: tuple[int, int]) -> Value:
            return filters(self, site, tiles, (0, 0) if site.y.tensor == "r" else component)

        monkeypatch.setattr(Constants, "filter", filter)
    elif faulty == "all transforms":
        rows = Algorithm.window
        monkeypatch.setattr(Algorithm, "window", lambda *a: (rows(*a)[0], tuple(2 * each for each in rows(*a)[1])))
    else:
        emit = onnx_io.emit

        def emitted(graph: Graph) -> onnx_ir.Model:
            model = emit(graph)
            for value in model.graph.initializers.values():
                if value.const_value is not None and value.const_value.dtype == onnx_ir.DataType.FLOAT:
                    value.const_value = onnx_ir.tensor(value.const_value.numpy() * np.float32(1.01), name=value.name)
            return model

        monkeypatch.setattr(onnx_io, "emit", emitted)
    model = network(TWO, filters_of("random"))
    options = {"measure": False, "calibrate": False, "max_growth": 100}
    if faulty == "weight":
        with pytest.raises(VerificationError, match="not equivalent"):
            layoutopt.optimize(model, "cpu", **options)
        return
    result = layoutopt.optimize(model, "cpu", **options)
    assert result.report.verification.status == "passed"
    tiled = {node.name.partition("__")[0] for node in result.proto.graph.node if "/winograd/" in node.name}
    assert tiled == ({"y"} if faulty == "one transform" else set())
    (warning,) = warnings_of(result.report)
    where = "at r, because" if faulty == "one transform" else "at r, y, because"
    assert f"winograd left out {where} with it the rewritten model is not equivalent" in warning
