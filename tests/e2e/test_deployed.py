"""The networks of `zoo.DEPLOYED` load, and are optimised without an error and with the same results."""

from itertools import product
from pathlib import Path

import pytest
import zoo

import layoutopt

SMALL = ("ppocr_cls", "silero_vad", "silero_vad_sequence")
WAYS = (
    ("cpu", None),
    ("cpu", "any"),
    ("cpu-avx512", None),
    ("gpu-hopper", None),
    ("ascend-910b", "compiler"),
)


def check(network: str, target: str, runtime: str | None, folder: Path) -> None:
    report = layoutopt.optimize(zoo.save(network, folder), target, runtime=runtime).report
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed"
    assert (report.verification.largest_error or 0) <= 1e-4


@pytest.mark.parametrize("network", SMALL)
def test_a_small_network_is_optimised(network: str, tmp_path: Path) -> None:
    check(network, "cpu", None, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize(("network", "way"), list(product(zoo.DEPLOYED, WAYS)))
def test_every_network_every_way(network: str, way: tuple[str, str | None], tmp_path: Path) -> None:
    check(network, *way, tmp_path)


def test_sizes_are_those_of_networks() -> None:
    assert set(zoo.SIZES) <= set(zoo.DEPLOYED)
