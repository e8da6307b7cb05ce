"""The built-in targets: their numbers and sources, and their names."""

import platform
import re

import pytest
from target_errors import message

from layoutopt.cost_models import load_target, registry, target_names
from layoutopt.cost_models.spec import Sourced
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType

BUILT_IN = (
    "ascend-310",
    "ascend-910b",
    "cpu-avx2",
    "cpu-avx512",
    "cpu-neon",
    "gpu-ampere",
    "gpu-hopper",
    "gpu-turing",
)
BARE_NUMBER = re.compile(r"=\s*-?[0-9]")


def test_the_built_in_targets() -> None:
    assert target_names() == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_number_has_a_source(name: str) -> None:
    numbers = list(load_target(name).spec.numbers())
    assert len(numbers) > 20
    assert all(isinstance(number, Sourced) and len(number.source) > 5 for _, number in numbers)


def test_no_target_file_has_a_number_outside_a_sourced_table() -> None:
    for path in registry.TARGETS.glob("*.toml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if BARE_NUMBER.search(line.split("#")[0]):
                assert re.search(r"\{ value = [^,]+, source = \".+\" \}$", line), f"{path.name}: {line}"


def test_block_sizes() -> None:
    dtypes = (DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.INT4, DType.INT2, DType.FLOAT32)
    for target, float32 in (("ascend-310", 16), ("ascend-910b", 8)):  # the 910B's cube computes float32
        ascend = load_target(target).spec
        assert [ascend.block(dtype) for dtype in dtypes] == [16, 16, 32, 64, 128, float32]
    assert load_target("gpu-hopper").spec.block(DType.FLOAT32) == 1


# --- names --------------------------------------------------------------------------------------------------


def test_an_unknown_target() -> None:
    with pytest.raises(TargetError) as error:
        load_target("gpu-hoper")
    text = message(error)
    assert "no target 'gpu-hoper'" in text
    assert "did you mean gpu-hopper?" in text
    assert "cpu-avx2" in text


@pytest.mark.parametrize(
    ("machine", "features", "expected"),
    [
        ("aarch64", set(), "cpu-neon"),
        ("arm64", set(), "cpu-neon"),
        ("x86_64", {"avx2", "avx512f"}, "cpu-avx512"),
        ("AMD64", {"avx2"}, "cpu-avx2"),
    ],
)
def test_the_host(machine: str, features: set[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(registry, "instruction_sets", lambda: features)
    assert load_target("cpu").name == expected
