"""The campaign: each example has one outcome, whatever it does to its process and whenever the campaign is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .campaign.command import main
from .campaign.pending import Pending, seeds_of
from .campaign.rounds import Run
from .campaign.store import NAME, Store, StoreError, lines_of
from .campaign.summary import ranges, summarize
from .tiny_part import KINDS

ROOT = Path(__file__).parents[2]
TINY = "fuzz.tiny_part"
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "campaign.py")]


def campaign(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and stderr of the command in this process."""
    code = main([str(each) for each in arguments])
    return code, capsys.readouterr().err


def outcomes_in(folder: Path) -> list[tuple[int, str]]:
    """The seeds and kinds in a store, in ascending order."""
    return sorted((line["seed"], line["kind"]) for line in lines_of(folder) if "part" in line)


def expected(seeds: range) -> list[tuple[int, str]]:
    return [(seed, KINDS[seed % len(KINDS)]) for seed in seeds]


def test_a_crash_or_a_hang_is_the_outcome_of_one_example(tmp_path: Path) -> None:
    done = campaign("--parts", TINY, "--examples", 14, "--jobs", 1, "--output", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert outcomes_in(tmp_path) == expected(range(14))
    assert f"FAILURE {TINY}:4 wrong: detail of 4" in done.stdout
    kept = tmp_path / "failures" / f"{TINY}-4"
    assert (kept / "seed.txt").read_text() == "4"
    command = f"python benchmarks/campaign.py --only {TINY}:4"
    assert command in (kept / "failure.txt").read_text()
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text()
        assert command in text
        assert "14 examples" in text
        assert "graphs: no example" in text
    again = campaign("--only", f"{TINY}:4", "--output", tmp_path / "one")
    assert (again.returncode, again.stdout.splitlines()[0]) == (1, f"{TINY}:4: wrong: detail of 4")
    assert (tmp_path / "one" / "seed.txt").read_text() == "4"


def test_a_killed_campaign_goes_on_and_runs_each_example_once(tmp_path: Path) -> None:
    options = ["--parts", TINY, "--jobs", "1", "--output", str(tmp_path)]
    first = subprocess.Popen([*COMMAND, *options, "--minutes", "0.2"], stdout=subprocess.DEVNULL)
    store, limit = tmp_path / NAME, time.monotonic() + 120
    while not store.exists() or '"part"' not in store.read_text():
        assert time.monotonic() < limit
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    with store.open("a") as file:
        file.write('{"part": "fuzz.tiny')  # as if it had been killed while it wrote
    begun = len(store.read_text().splitlines())
    done = campaign(*options, "--examples", 21)
    assert done.stderr == ""
    assert begun > 1
    assert [each for each in outcomes_in(tmp_path) if each[0] < 21] == expected(range(21))
    assert campaign(*options, "--examples", 21).stdout.count("FAILURE") == 0  # nothing is left to do


def test_bad_arguments_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path, {"seed": 0, "shard": "1/1"})
    store.append([{"session": {"settings": {"seed": 0, "shard": "1/1"}}}])
    locked = called(capsys, "--parts", TINY, "--output", tmp_path)
    store.close()
    cases = [
        (locked, "another campaign is writing here; choose another --output"),
        (called(capsys, "--parts", "grphs"), "there is no part 'grphs'"),
        (called(capsys, "--shard", "3/2"), "'3/2' is not K/N; use 1/4"),
        (called(capsys, "--only", "graphs"), "'graphs' is not PART:SEED"),
        (called(capsys, "--parts", TINY, "--seed", 1, "--output", tmp_path), "is a campaign with seed 0, not 1"),
        (called(capsys, "--report", tmp_path / "none", "--output", tmp_path / "r"), "No such file or directory"),
        (called(capsys, "--cluster", "slurm://here"), "is not the address of a cluster"),
    ]
    for (code, stderr), text in cases:
        assert code == 2
        assert text in stderr
        assert (stderr.count("\n"), stderr[:7]) == (1, "error: ")
    assert not (tmp_path / "r").exists()


@given(st.integers(0, 99), st.integers(0, 60), st.integers(1, 7))
def test_shards_are_disjoint_and_complete(first: int, count: int, of: int) -> None:
    shards = [seeds_of(first, count, (number, of)) for number in range(1, of + 1)]
    assert sorted(seed for shard in shards for seed in shard) == list(range(first, first + count))


@given(st.sets(st.integers(0, 30)), st.lists(st.integers(1, 9)), st.randoms())
def test_pending_seeds_are_taken_once_and_in_order(done: set[int], sizes: list[int], random: object) -> None:
    """Whatever is given back is taken again before fresh seeds."""
    pending, kept = Pending(range(30), done), list[int]()
    for size in sizes:
        taken = pending.take(size)
        assert taken == sorted(taken)
        half = len(taken) // 2
        kept += taken[:half]
        pending.give_back(reversed(taken[half:]))
    kept += pending.take(100)
    assert sorted(kept) == [seed for seed in range(30) if seed not in done]


def test_parts_get_time_by_their_shares() -> None:
    """A part that has used its share gets one task, the others the rest of the round."""

    class Cluster:
        num_workers = 2

    pending = {name: Pending(seeds_of(0, None), ()) for name in ("a", "b", "c")}
    run = Run(Cluster(), pending, {"a": 1, "b": 1, "c": 2}, time.time() + 600, lambda lines: None)  # type: ignore[arg-type]
    run.add({"task": {"part": "a", "wall": 1e4, "preparation": 0.0}})
    tasks = run._tasks(600.0)
    counts = {name: sum(task["part"] == name for task in tasks) for name in pending}
    assert counts["a"] == 1
    assert counts["c"] > counts["b"] > 1
    seeds = [(task["part"], seed) for task in tasks for seed in task["seeds"]]
    assert len(seeds) == len(set(seeds))


def test_shards_add_up_in_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        output = tmp_path / str(number)
        called(capsys, "--parts", TINY, "--examples", 6, "--shard", f"{number}/2", "--jobs", 1, "--output", output)
    assert called(capsys, "--report", tmp_path / "1", tmp_path / "2", "--output", tmp_path) == (1, "")
    text = (tmp_path / "report.md").read_text()
    assert "6 examples" in text
    assert "0-5" in text
    assert "the shards" not in text
    assert called(capsys, "--report", tmp_path / "1", "--output", tmp_path) == (1, "")
    assert "- the shards 2/2" in (tmp_path / "report.md").read_text()


def test_an_example_counts_once() -> None:
    line = {"part": "graphs", "seed": 3, "kind": "equal"}
    task = {"task": {"part": "graphs", "cpu": 2.0, "wall": 2.0, "preparation": 1.0}}
    part = summarize([[line, task], [line]]).parts["graphs"]
    assert (part.examples, part.rate, part.hours_for_many) == (1, 0.5, pytest.approx(200_000 / 3600))


def test_seeds_are_written_as_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges(range(0, 40, 2)).endswith(", 14 and 12 more ranges")


def test_a_store_with_a_damaged_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"part"\n{}\n')
    with pytest.raises(StoreError, match="line 1 is not JSON"):
        list(lines_of(tmp_path))
