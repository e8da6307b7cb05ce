"""Files for x86 without AVX-512, in stock onnxruntime on an emulated processor without it."""

from pathlib import Path

import emulator
import numpy as np
import onnx
import pytest
import zoo
from test_other_machines import native_ops, network

import layoutopt
from layoutopt.runtime.session import Session

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not emulator.AVAILABLE, reason=emulator.UNAVAILABLE_REASON),
]


def inputs(model: Path) -> dict[str, np.ndarray]:
    """Random inputs; every symbolic extent is 1."""
    generator = np.random.default_rng(0)
    given = Session(model).get_inputs()
    shapes = {each.name: [dim if isinstance(dim, int) else 1 for dim in each.shape] for each in given}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def saved(name: str, folder: Path) -> Path:
    if name in zoo.NAMES:
        return zoo.save(name, folder)
    onnx.save(network(), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def assert_equal(emulated: Path, here: Path) -> None:
    """Compare a model on the emulated processor with another one on this machine."""
    feeds = inputs(here)
    session = Session(here)
    expected = dict(zip([each.name for each in session.get_outputs()], session.run(None, feeds), strict=True))
    found = emulator.run_emulated(emulated, feeds)
    assert found.keys() == expected.keys()
    for output, got in found.items():
        np.testing.assert_allclose(got, expected[output], atol=1e-5 * float(np.abs(expected[output]).max()), rtol=0)


@pytest.mark.parametrize("name", ["residual", "keras_mobilenetv3s", "mobilenetv2"])
def test_avx2_runs_its_kernels(name: str, tmp_path: Path) -> None:
    """Whatever machine it was written on."""
    model, out = saved(name, tmp_path), tmp_path / "out.onnx"
    result = layoutopt.optimize(model, "cpu-avx2")
    assert result.report.verification.status == "passed" and native_ops(result.proto)
    result.save(out)
    assert_equal(out, model)


@pytest.mark.parametrize("target", ["cpu-avx2", "cpu-avx512"])
@pytest.mark.parametrize("name", ["residual", "keras_mobilenetv3s"])
def test_portable_models_run(name: str, target: str, tmp_path: Path) -> None:
    """With its kernels, or the standard branch."""
    model, out = saved(name, tmp_path), tmp_path / "out.onnx"
    result = layoutopt.optimize(model, target, portable=True)
    assert result.report.portable is not None
    result.save(out)
    assert_equal(out, model)


def test_blocks_of_16_stop_with_the_reason(tmp_path: Path) -> None:
    model, out = saved("residual", tmp_path), tmp_path / "out.onnx"
    layoutopt.optimize(model, "cpu-avx512").save(out)
    with pytest.raises(RuntimeError, match="packed for blocks of 16 channels, and this machine has others"):
        emulator.run_emulated(out, inputs(model))
