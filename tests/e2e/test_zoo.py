"""Networks of the zoo, deployed ones and decoders, for three families of hardware."""

from itertools import product
from pathlib import Path

import light
import pytest
import zoo
from tiers import quick_first

import layoutopt
from layoutopt.report.schema import Report

TARGETS = ("cpu-avx512", "gpu-hopper", "ascend-910b")
DIALECTS = ("functions", "ops")
WAYS = (*product(TARGETS, DIALECTS), ("cpu", None))  # the last one: this machine, native kernels
NETWORKS = (*zoo.NAMES, *light.NAMES)
SMALL = "light_squeezenet"
QUICK = [
    (SMALL, *WAYS[0]),
    (SMALL, *WAYS[3]),
    (SMALL, *WAYS[4]),
    ("mobilenetv2", *WAYS[1]),
    ("keras_mobilenetv3s", *WAYS[-1]),
]


def optimized(network: str, folder: Path, target: str, dialect: str | None = None, verify: bool = True) -> Report:
    if network in zoo.NAMES:
        path = zoo.save(network, folder)
        return layoutopt.optimize(path, target, dialect=dialect, verify=verify).report
    return layoutopt.optimize(light.load(network), target, dialect=dialect, verify=verify).report


def assert_equal_and_proven(report: Report) -> None:
    assert report.plan is not None
    assert report.plan.gap == 0
    assert report.plan.seconds_after <= report.plan.seconds_before
    assert report.after.weight_casts == 0
    assert report.verification.status == "passed"
    if report.changed:
        assert report.verification.outputs_depend_on_inputs
        assert report.verification.largest_error is not None
        assert report.verification.largest_error <= 1e-4


EVERY = [(name, *way) for name, way in product(NETWORKS, WAYS)]


@pytest.mark.parametrize(("network", "target", "dialect"), quick_first(QUICK, EVERY))
def test_a_network_computes_the_same(network: str, target: str, dialect: str | None, tmp_path: Path) -> None:
    assert_equal_and_proven(optimized(network, tmp_path, target, dialect))


MOVES = {"keras_mobilenetv3s": 0, "resnet50": 1}
MORE = {
    "segformer_b0": 2,
    "mobilenetv2": 1,
    "efficientnet_b0": 1,
    "whisper_enc": 1,
    "sd_vae_decoder": 2,
    "convnext_tiny": 1,
    "detr": 1,
}
MORE |= {"keras_densenet121": 0, "upernet": 2, "vit_s": 1}


@pytest.mark.parametrize(("network", "most"), quick_first(MOVES.items(), MORE.items()))
def test_few_activations_are_moved_on_a_gpu(network: str, most: int, tmp_path: Path) -> None:
    report = optimized(network, tmp_path, "gpu-hopper", "functions", verify=False)
    assert report.after.casts + report.after.transposes <= most


# --- deployed networks, and decoders with key-value caches -------------------------------------------------

RUNTIMES = (
    ("cpu", None),
    ("cpu-avx512", None),
    ("cpu", "any"),
    ("gpu-hopper", "compiler"),
    ("ascend-910b", "compiler"),
)
SMALL_DEPLOYED = [(name, "cpu", None) for name in ("silero_vad", "silero_vad_sequence")]
SMALL_DECODERS = [("qwen2_genai_int4", "cpu", None)]


@pytest.mark.parametrize(
    ("network", "target", "runtime"),
    quick_first(SMALL_DEPLOYED, [(name, *way) for name, way in product(zoo.DEPLOYED, RUNTIMES)]),
)
def test_a_deployed_network_computes_the_same(network: str, target: str, runtime: str | None, tmp_path: Path) -> None:
    report = layoutopt.optimize(zoo.save(network, tmp_path), target, runtime=runtime).report
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed"
    assert (report.verification.largest_error or 0) <= 1e-4
    assert set(zoo.SIZES) <= set(zoo.DEPLOYED)


@pytest.mark.parametrize(
    ("network", "target", "runtime"),
    quick_first(SMALL_DECODERS, [(name, *way) for name, way in product(zoo.DECODERS, RUNTIMES)]),
)
def test_a_decoder_computes_the_same_with_full_and_with_empty_caches(
    network: str, target: str, runtime: str | None, tmp_path: Path
) -> None:
    report = layoutopt.optimize(zoo.save(network, tmp_path), target, runtime=runtime).report
    assert report.verification.status == "passed"
    if report.changed:
        caches = [
            size for sizes in report.verification.sizes for name, size in sizes.items() if name.startswith("past")
        ]
        assert max(caches) > 0 and min(caches) == 0
