"""The memory that a process may still allocate is the least that the machine, its groups and its limits leave."""

import resource
from pathlib import Path

import pytest

from layoutopt.runtime.available_memory import available_bytes

KB = 1024


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8,000 kB available; the process has 300 kB of data."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable: 8000 kB\n")
    (tmp_path / "self/status").write_text("Name:\tpython\nVmSize:\t 900 kB\nVmData:\t 300 kB\n")
    (tmp_path / "self/cgroup").write_text("")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    return tmp_path


def test_what_the_machine_has(system: Path) -> None:
    assert available_bytes(system, system) == 8000 * KB


@pytest.mark.parametrize(
    ("line", "folder", "limit", "used"),
    [
        ("0::/a/b", "a", "memory.max", "memory.current"),
        ("4:cpu,memory:/a/b", "memory/a", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_a_group_around_the_process(system: Path, line: str, folder: str, limit: str, used: str) -> None:
    groups = system / "groups"
    (groups / folder / "b").mkdir(parents=True)
    (system / "self/cgroup").write_text(f"7:cpuset:/x\n{line}\n")
    (groups / folder / "b" / limit).write_text("max\n")
    (groups / folder / limit).write_text(f"{5000 * KB}\n")
    (groups / folder / used).write_text(f"{2000 * KB}\n")
    (groups / folder / "memory.stat").write_text(f"anon 7\ninactive_file {500 * KB}\n")
    assert available_bytes(system, groups) == 3500 * KB


@pytest.mark.parametrize(("kind", "left"), [(resource.RLIMIT_DATA, 1700), (resource.RLIMIT_AS, 1100)])
def test_limits_of_the_process(system: Path, monkeypatch: pytest.MonkeyPatch, kind: int, left: int) -> None:
    limits = {kind: (2000 * KB, 2000 * KB)}
    monkeypatch.setattr(resource, "getrlimit", lambda asked: limits.get(asked, (resource.RLIM_INFINITY,) * 2))
    assert available_bytes(system, system) == left * KB
