"""`optimize --tune`: what is printed and written, and how Ctrl-C and wrong options end."""

import json
from pathlib import Path

import onnxruntime
import pytest
from command_line import Cli

from layoutopt.driver.calibration import VARIABLE
from layoutopt.driver.tuning.trials import Trials


def test_variants_are_printed_and_reported(cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    before = Path(model).read_bytes()
    found = cli("optimize", model, "-o", "out.onnx", "--tune", "2", "--no-calibrate", "--report", "report.json")
    assert (found.code, found.err) == (0, "")
    tuning = json.loads(Path("report.json").read_text())["tuning"]
    assert tuning["seconds"] == 2 and tuning["stopped"] in ("time", "no more variants") and tuning["variants"]
    assert f"{len(tuning['variants'])} variants in " in found.out
    measured = [each["name"] for each in tuning["variants"] if each["gain"]]
    assert ("Variants  speed-up over the original" in found.out) == bool(measured)
    assert Path(model).read_bytes() == before
    onnxruntime.InferenceSession("out.onnx", providers=["CPUExecutionProvider"])


def test_ctrl_c_ends_the_search_and_the_best_version_is_written(
    cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trials, "evaluate", interrupt)
    found = cli("optimize", model, "-o", "out.onnx", "--tune", "60", "--no-calibrate")
    assert found.code == 0 and "0 variants" in found.out and "interrupted" in found.out
    assert Path("out.onnx").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tune", "0"], "--tune 0: not a time; give seconds above 0"),
        (["--tune", "5", "--no-measure"], "--tune: tuning needs measurements; leave out --no-measure"),
        (["--tune", "5", "--runtime", "any"], "tuning runs models in the onnxruntime of this machine"),
    ],
)
def test_wrong_options(cli: Cli, model: str, options: list[str], message: str) -> None:
    found = cli("optimize", model, "-o", "out.onnx", *options)
    assert found.code == 2 and message in found.err and len(found.err.splitlines()) == 1
    assert not Path("out.onnx").exists()
