"""One plan for several targets: it reports the time on each target, and the result is equivalent."""

from importlib.metadata import EntryPoint

import light
import onnx
import pytest

import layoutopt
from layoutopt.cli import main
from layoutopt.cost_models import find_target, load_target
from layoutopt.cost_models.registry import EXTENSIONS
from layoutopt.errors import TargetError

BOTH = "gpu-hopper,ascend-910b"


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return light.load("light_squeezenet")


def test_each_target_is_told_what_it_gets(model: onnx.ModelProto) -> None:
    result = layoutopt.optimize(model, BOTH)
    plan, report = result.plan, result.report
    assert plan is not None and report.plan is not None and report.verification.status == "passed"
    assert report.target == BOTH
    assert [each.target for each in report.plan.targets] == BOTH.split(",")
    for each in report.plan.targets:
        assert each.seconds_alone <= min(each.seconds_after, each.seconds_before) * (1 + 1e-6)
        assert each.regret == pytest.approx(each.seconds_after / each.seconds_alone - 1)
    assert plan.gap == 0
    before = max(each.seconds_before / each.seconds_alone for each in report.plan.targets)
    assert max(each.regret for each in report.plan.targets) + 1 < before
    assert not layoutopt.optimize(result.proto, BOTH).report.changed


def test_alone_a_target_takes_no_longer_than_its_own_plan(model: onnx.ModelProto) -> None:
    """`seconds_alone` of a target is at most the time of its own plan, because the joint candidates include its own."""
    both = layoutopt.optimize(model, BOTH, verify=False).report.plan
    for each in both.targets:
        own = layoutopt.optimize(model, each.target, verify=False).report.plan
        assert each.seconds_alone <= own.seconds_after * (1 + 1e-6)
        assert own.seconds_before == pytest.approx(each.seconds_before)


def test_without_time_nothing_is_chosen_otherwise(model: onnx.ModelProto) -> None:
    plan = layoutopt.optimize(model, BOTH, time_limit=1e-9, verify=False).report.plan
    assert [each.regret for each in plan.targets] == [0.0] * 2
    assert plan.gap > 0 and not plan.optimal


class _Npu:
    """A cost model of a package: that of a built-in target under another name."""

    def __init__(self) -> None:
        self._model = load_target("ascend-910b")
        self.name, self.dialect = "my-npu", "functions"
        self.preferred_formats = self._model.preferred_formats
        self.kernel_seconds, self.conversion_seconds = self._model.kernel_seconds, self._model.conversion_seconds


npu = _Npu()
not_a_model = "a string"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of a package that is this file."""
    values = {"my-npu": "_Npu", "ready": "npu", "wrong": "not_a_model"}
    entries = {name: EntryPoint(name, f"{__name__}:{value}", EXTENSIONS.group) for name, value in values.items()}
    monkeypatch.setattr(EXTENSIONS, "found", entries)
    monkeypatch.setattr(EXTENSIONS, "_loaded", {})


@pytest.mark.usefixtures("installed")
def test_cost_models_of_other_packages(model: onnx.ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("my-npu", "ready"):
        report = layoutopt.optimize(model, name, verify=False).report
        assert (report.target, report.changed) == ("my-npu", True)
    assert [each.target for each in layoutopt.optimize(model, "gpu-hopper,my-npu", verify=False).plan.outcomes] == [  # type: ignore[union-attr]
        "gpu-hopper",
        "my-npu",
    ]
    assert main(["targets"]) == 0
    assert "my-npu" in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "expected"), [("wrong", "is no CostModel but a str"), ("my-nup", "did you mean my-npu?")]
)
def test_packages_with_something_else(name: str, expected: str) -> None:
    with pytest.raises(TargetError, match=expected):
        find_target(name)
