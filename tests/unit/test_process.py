"""The process and its machine: memory, processor, collector, telemetry, logger, a checkout."""

import gc
import logging
import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import onnx
import psutil
import pytest

import layoutopt
from layoutopt.driver.job import reduced_garbage_collection
from layoutopt.kernel_times.store import Machine
from layoutopt.runtime import processor
from layoutopt.runtime.available_memory import available_bytes

KB = 1024


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8,000 kB available; the process has no limits."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8000 * KB))
    monkeypatch.setattr(psutil.Process, "rlimit", lambda process, kind: (psutil.RLIM_INFINITY,) * 2)
    return tmp_path


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


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read on Linux")
@pytest.mark.parametrize(("kind", "left"), [(resource.RLIMIT_DATA, 1700), (resource.RLIMIT_AS, 1100)])
def test_limits_of_the_process(system: Path, monkeypatch: pytest.MonkeyPatch, kind: int, left: int) -> None:
    used = SimpleNamespace(data=300 * KB, vms=900 * KB)
    monkeypatch.setattr(psutil.Process, "memory_info", lambda process: used)
    limit = (2000 * KB if asked == kind else psutil.RLIM_INFINITY for asked in (psutil.RLIMIT_DATA, psutil.RLIMIT_AS))
    monkeypatch.setattr(psutil.Process, "rlimit", lambda process, asked: (next(limit),) * 2)
    assert available_bytes(system, system) == left * KB


X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9R14
flags\t\t: fpu avx avx2 fma avx512f

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


def describe(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system report a processor."""
    file = folder / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(processor, "_CPUINFO", file)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def test_the_first_processor_of_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    describe(X86, monkeypatch, tmp_path)
    assert processor.processor_name() == "AMD EPYC 9R14"
    assert processor.instruction_sets() == {"fpu", "avx", "avx2", "fma", "avx512f"}
    machine = Machine.current()
    assert (machine.cpu, machine.instructions) == ("AMD EPYC 9R14 25 17", "avx avx2 avx512f fma")


def test_instruction_sets_of_other_systems_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = processor.instruction_sets()
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "none")
    assert processor.processor_fields() == {} and processor.processor_name()
    found = processor.instruction_sets()
    assert {"avx2", "avx512f"} & found == {"avx2", "avx512f"} & known
    assert found.issuperset(Machine.current().instructions.split())


def test_collections_are_rare_until_the_last_call_ends() -> None:
    usual = gc.get_threshold()
    with pytest.raises(ValueError, match="inside"), reduced_garbage_collection():
        rare = gc.get_threshold()
        assert rare[0] > 100_000
        with reduced_garbage_collection():
            assert gc.get_threshold() == rare
        assert gc.get_threshold() == rare
        raise ValueError("inside")
    assert gc.get_threshold() == usual


MODEL = '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


def run(tmp_path: Path, *arguments: str, **variables: str) -> list[str]:
    """The files that a Python process writes to its home and temporary folders."""
    folders = {name: tmp_path / name for name in ("HOME", "TMPDIR")}
    for folder in folders.values():
        folder.mkdir()
    silent = ("ORT_DISABLE_TELEMETRY", "CI", "GITHUB_ACTIONS", "ORT_RUNNING_UNIT_TESTS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in silent}
    environment |= {name: str(folder) for name, folder in folders.items()} | variables
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [str(path.relative_to(tmp_path)) for folder in folders.values() for path in folder.rglob("*")]


def test_optimize_leaves_no_files(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    assert run(tmp_path, "-m", "layoutopt", "optimize", "m.onnx", "-o", "out.onnx", "-t", "cpu") == []


def test_a_choice_of_the_user_is_kept(tmp_path: Path) -> None:
    script = "import layoutopt, os; assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'"
    assert run(tmp_path, "-c", script, ORT_DISABLE_TELEMETRY="0") == []


TWICE_RELU = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
net (float[1,8,4,4] x) => (float[1,8,4,4] y) { a = Relu(x)  y = Neg(a) }
""")


def test_stages_and_passes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "layoutopt"):
        result = layoutopt.optimize(TWICE_RELU, measure=False, calibrate=False)
    levels: dict[int, list[str]] = {}
    for record in caplog.records:
        levels.setdefault(record.levelno, []).append(record.getMessage())
    assert "model: lifting" in levels[logging.INFO]
    passes = [message for message in levels[logging.DEBUG] if message.startswith("model: pass ")]
    assert len(passes) == len(result.report.passes) > 0


def test_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    wrong = onnx.ModelProto()
    wrong.CopyFrom(TWICE_RELU)
    wrong.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 9  # a fault that onnxruntime tolerates
    with caplog.at_level(logging.WARNING, "layoutopt"):
        layoutopt.optimize(wrong, verify=False, measure=False, calibrate=False)
    assert any(record.getMessage().startswith("model: y: ") for record in caplog.records)


CHECKOUT = Path(__file__).parents[2]


def test_a_checkout_runs_from_its_root(tmp_path: Path) -> None:
    """Without `site`, and so without the hook of an editable install; what layoutopt depends on is on the path."""
    for name in ("layoutopt", "passes", "cost_models"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}

    def python(*arguments: str) -> str:
        command = [sys.executable, "-S", *arguments]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "gpu-hopper" in python("-m", "layoutopt", "targets")
    probe = "import layoutopt.passes, layoutopt.cost_models as c; print(layoutopt.passes.__file__, c.__file__)"
    places = [Path(each) for each in python("-c", probe).split()]
    assert places == [tmp_path / "passes/__init__.py", tmp_path / "cost_models/__init__.py"]
