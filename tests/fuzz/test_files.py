"""A damaged file results in an exit code and one line. The fuzzer is `python benchmarks/campaign.py --parts files`."""

import os
import signal
from pathlib import Path

import onnx
import pytest
from tiers import tiered

from .choices import Seeded
from .files import evaluate, examine
from .isolation import Limits, Verdict, in_separate_process, outcomes
from .test_structure import sound


@pytest.mark.parametrize("count", tiered([30, 6000], 1))
def test_damaged_files_end_in_one_line(count: int) -> None:
    """Each runs in a separate process, so that crashes are detected as well."""
    found = list(outcomes(examine, range(count), chunk=1000))
    assert [(seed, outcome) for seed, outcome in found if outcome.is_failure] == []
    assert {"exit 0", "exit 3"} <= {outcome.kind for _, outcome in found}


def test_a_file_that_is_good_is_written(tmp_path: Path) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = evaluate(Seeded(seed), sound().SerializeToString(), folder)
        assert verdict.kind == "exit 0", verdict


LONG = "float[9223372036854775807] x"


@pytest.mark.parametrize(
    "text",
    [
        f"g ({LONG}) => (float y) <int64 i = {{-1}}> {{ y = Gather (x, i) }}",
        f"g ({LONG}, float[1] z) => (y) {{ a = Add (x, z) y = Cast <to = 7> (a) }}",
    ],
)
def test_what_has_ended_a_process(text: str, tmp_path: Path) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    content = onnx.parser.parse_model(header + text).SerializeToString()
    verdict = in_separate_process(lambda: evaluate(Seeded(0), content, tmp_path))
    assert verdict.kind == "exit 3", verdict
    assert "too many for any memory" in verdict.detail


def test_a_crash_or_a_hang_is_the_outcome_of_one_example() -> None:
    def examine(seed: int) -> Verdict:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while seed == 3:
            pass
        return Verdict("equal")

    kinds = [found.kind for _, found in outcomes(examine, range(5), limits=Limits(cpu=0.2))]
    assert kinds == ["equal", "killed", "equal", "hangs", "equal"]
