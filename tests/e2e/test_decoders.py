"""Decoders with key-value caches are optimised for CPUs, and compared with the original with full and with empty caches."""

from itertools import product
from pathlib import Path

import pytest
import zoo

import layoutopt

WAYS = (
    {"target": "cpu"},
    {"target": "cpu-avx512"},
    {"target": "cpu", "runtime": "any"},
    {"target": "gpu-hopper", "runtime": "compiler"},
    {"target": "ascend-910b"},
)


def optimized(network: str, folder: Path, way: dict[str, str]) -> layoutopt.Result:
    """The verified result, at sizes with caches."""
    result = layoutopt.optimize(zoo.save(network, folder), **way)
    verification = result.report.verification
    assert verification.status == "passed"
    if result.report.changed:
        caches = [size for sizes in verification.sizes for name, size in sizes.items() if name.startswith("past")]
        assert max(caches) > 0 and min(caches) == 0
    return result


@pytest.mark.parametrize("network", ["llama_dynamo", "qwen2_genai_int4"])
def test_a_decoder_computes_the_same(network: str, tmp_path: Path) -> None:
    optimized(network, tmp_path, {"target": "cpu"})


@pytest.mark.thorough
@pytest.mark.parametrize(("network", "way"), list(product(zoo.DECODERS, WAYS)))
def test_every_decoder_every_way(network: str, way: dict[str, str], tmp_path: Path) -> None:
    optimized(network, tmp_path, way)
