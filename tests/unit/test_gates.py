"""Budgets, baselines and their reports, on numbers made up here."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.cost.size_growth import SLACK
from layoutopt.errors import ArgumentError
from layoutopt.gates.baseline import Baseline, BaselineEntry, read_baseline
from layoutopt.gates.budgets import Budgets
from layoutopt.gates.checks import BYTES_TOLERANCE, SPEED_UP_TOLERANCE, check_baseline, check_budgets
from layoutopt.gates.github import annotations
from layoutopt.gates.junit import junit
from layoutopt.gates.report import Finding, GateReport, Level, ModelResult, Numbers, status_of

PRINTABLE = "a%::x,y|<b>`]]>&é"
EVIL = "a\n%::x,y|<b>`]]>&\x1b\ufffe\x00é"

numbers = st.builds(
    Numbers,
    transposes=st.integers(0, 9),
    casts=st.integers(0, 9),
    bytes_moved=st.integers(0, 10**6),
    speed_up=st.none() | st.floats(0.5, 4),
    constants_before=st.integers(0, 10**7),
    constants_after=st.integers(0, 10**7),
)


def entry(found: Numbers, **more: object) -> BaselineEntry:
    fields = {"model": "a.onnx", "target": "t", "runtime": "r", "sha256": "0", "numbers": found}
    return BaselineEntry.model_validate({**fields, **more})


def checks(findings: list[Finding], level: Level = "error") -> list[str]:
    return [each.check for each in findings if each.level == level]


@given(numbers)
def test_numbers_are_within_budgets_equal_to_them_and_exceed_smaller_ones(found: Numbers) -> None:
    equal = Budgets(
        max_transposes=found.transposes,
        max_casts=found.casts,
        max_bytes_moved=found.bytes_moved,
        min_speedup=found.speed_up,
        max_size_growth=None if not found.constants_before else max(found.constants_after, 1) / found.constants_before,
    )
    assert not [*check_budgets(found, equal)]
    if found.transposes and found.casts and found.bytes_moved and found.speed_up:
        smaller = Budgets(
            max_transposes=found.transposes - 1,
            max_casts=found.casts - 1,
            max_bytes_moved=found.bytes_moved - 1,
            min_speedup=found.speed_up * 1.01,
        )
        failed = [*check_budgets(found, smaller)]
        assert checks(failed) == ["max-transposes", "max-casts", "max-bytes-moved", "min-speedup"]
        assert status_of(failed) == "over budget"


def test_constants_may_always_grow_by_the_slack() -> None:
    def findings(after: int) -> list[Finding]:
        found = Numbers(transposes=0, casts=0, bytes_moved=0, speed_up=1, constants_before=100, constants_after=after)
        return [*check_budgets(found, Budgets(max_size_growth=2))]

    assert findings(200 + SLACK) == []
    assert checks(findings(201 + SLACK)) == ["max-size-growth"]


def test_a_speed_up_that_is_not_known_is_not_checked() -> None:
    found = Numbers(transposes=0, casts=0, bytes_moved=0, speed_up=None)
    unknown = [*check_budgets(found, Budgets(min_speedup=2))]
    assert (checks(unknown), checks(unknown, "warning")) == ([], ["min-speedup"])


@given(numbers, numbers)
def test_regressions_are_the_numbers_that_are_worse_beyond_the_tolerance(now: Numbers, then: Numbers) -> None:
    worse = [
        now.transposes > then.transposes,
        now.casts > then.casts,
        now.bytes_moved > then.bytes_moved * (1 + BYTES_TOLERANCE),
        None not in (now.speed_up, then.speed_up)
        and (now.speed_up or 0) < (then.speed_up or 0) * (1 - SPEED_UP_TOLERANCE),
    ]
    findings = [*check_baseline(now, "0", {}, entry(then))]
    assert len(checks(findings)) == sum(worse)
    assert status_of(findings) == ("regression" if any(worse) else "passed")
    assert status_of(check_baseline(now, "0", {}, entry(now))) == "passed"


def test_warnings_about_a_comparison() -> None:
    found = Numbers(transposes=1, casts=0, bytes_moved=8, speed_up=1)
    assert checks([*check_baseline(found, "0", {}, None)], "warning") == ["baseline"]
    findings = [*check_baseline(found, "1", {"n": (1, 8)}, entry(found))]
    assert "has changed" in findings[0].message and "n=1:8" in findings[1].message
    assert checks(findings) == []
    optimised = [*check_baseline(found.model_copy(update={"speed_up": None}), "0", {}, entry(found))]
    assert (checks(optimised), checks(optimised, "warning")) == ([], ["baseline"])


def test_an_update_keeps_other_targets_and_drops_models_that_are_gone(tmp_path: Path) -> None:
    found = Numbers(transposes=1, casts=0, bytes_moved=8, speed_up=1)
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    old = Baseline(
        entries=[
            entry(found, model=model, target=target)
            for model, target in (("a.onnx", "t"), ("a.onnx", "u"), ("b.onnx", "t"), ("gone.onnx", "t"))
        ]
    )
    better = found.model_copy(update={"transposes": 0})
    new = old.updated([entry(better)], tmp_path)
    assert [(*each.key[:2], each.numbers.transposes) for each in new.entries] == [
        ("a.onnx", "t", 0),
        ("a.onnx", "u", 1),
        ("b.onnx", "t", 1),
    ]
    path = tmp_path / "baseline.json"
    path.write_text(new.model_dump_json())
    assert read_baseline(path) == new
    assert new.updated([], tmp_path) == new


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"layoutopt_baseline": 1,', "line 1 column"),
        (b'{"layoutopt_baseline": 2}', "layoutopt_baseline: "),
        (b'{"entry": []}', "entry: "),
    ],
)
def test_a_broken_baseline(content: bytes, place: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(ArgumentError) as raised:
        read_baseline(tmp_path / "b.json")
    assert place in raised.value.what and raised.value.where.endswith("b.json")


def report(*names: str) -> GateReport:
    found = Numbers(transposes=1, casts=1, bytes_moved=8, speed_up=1.5)
    findings = [
        Finding(check="max-casts", level="error", message="casts: 1, the budget is 0"),
        Finding(check="baseline", level="warning", message="another version wrote it"),
        Finding(check="baseline", level="error", message="transposes: 1, the baseline has 0"),
        Finding(check="baseline", level="warning", message="the model has changed"),
        Finding(check="min-speedup", level="warning", message="the estimated speed-up is not checked"),
    ]
    models = [
        ModelResult(
            model=name,
            sha256="0" * 64,
            status=status_of(findings),
            target="t",
            runtime="r",
            budgets={"max-casts": 0, "min-speedup": 2, "max-transposes": 5},
            numbers=found,
            is_compared=True,
            findings=findings,
        )
        for name in names
    ]
    failed = [Finding(check="plan", level="error", message=f"is not an ONNX model: {EVIL}")]
    names_of_broken = {"model": "broken.onnx", "target": "t", "runtime": "r"}
    broken = ModelResult(**names_of_broken, status=status_of(failed), findings=failed)
    return GateReport(layoutopt_version="0", target="t", runtime="r", baseline="b.json", models=[*models, broken])


def test_junit_is_xml_with_a_test_case_per_check() -> None:
    suites = ElementTree.fromstring(junit(report("models/a.onnx", EVIL)))
    assert {key: suites.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "11",
        "failures": "4",
        "errors": "1",
    }
    cases = suites[0].findall("testcase")
    assert [(each.get("name"), [part.tag for part in each]) for each in cases] == [
        ("plan", []),
        ("max-casts", ["failure"]),
        ("min-speedup", ["system-out"]),
        ("max-transposes", []),
        ("baseline", ["failure", "system-out"]),
    ]
    assert cases[0].get("time") == "0.000" and cases[-1][1].text == "another version wrote it\nthe model has changed"


def parsed(command: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as the runner of GitHub reads it: name, properties, message."""

    def text(data: str, pairs: tuple[tuple[str, str], ...]) -> str:
        for escape, char in (*pairs, ("%25", "%")):
            data = data.replace(escape, char)
        return data

    breaks = (("%0D", "\r"), ("%0A", "\n"))
    head, message = re.fullmatch(r"::([^:\r\n]*)::([^\r\n]*)", command).groups()  # type: ignore[union-attr]
    name, _, rest = head.partition(" ")
    properties = dict(pair.split("=", 1) for pair in rest.split(","))
    unescaped = {key: text(value, (*breaks, ("%3A", ":"), ("%2C", ","))) for key, value in properties.items()}
    return name, unescaped, text(message, breaks)


def test_annotations_are_one_line_each_and_escaped() -> None:
    found = [parsed(each) for each in annotations(report("models/a.onnx", PRINTABLE), Path())]
    assert [name for name, _, _ in found] == ["error"] * 5 + ["warning"] * 6
    assert [properties["file"] for _, properties, _ in found[:3:2]] == ["models/a.onnx", PRINTABLE]
    message = found[4][2]
    assert message.startswith("broken.onnx: is not an ONNX model: a\n%::x,y|<b>") and "\x1b" not in message
