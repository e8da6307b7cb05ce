"""Time and memory of `layoutopt optimize` for models with gigabytes of weights, under a limit of memory.

    python benchmarks/large.py --folder FOLDER [--models decoder-float16,decoder-int4,convolutions] [--layers 8,16,32]
        [--memory 4] [--targets gpu-hopper] [-- OPTIONS OF OPTIMIZE]

Writes each model of `large_models.py` to the folder (files with holes), optimises it in a process of its own, and prints a
Markdown table; the files are removed again. The limit is RLIMIT_DATA: the kernel refuses private writable memory above it,
which includes memory that is allocated and not used, and files that are mapped privately. Pages of files that are mapped for
reading are not limited, since the kernel can drop them. The peak is that of anonymous memory, sampled every 50 ms.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

from large_models import MODELS

GB = 1e9
POLL = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for the models and their results")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layers", default="", help="numbers of layers or blocks; by default a quarter, half and all")
    parser.add_argument("--targets", default="gpu-hopper")
    parser.add_argument("--memory", type=float, default=4.0, help="the limit in GB (10^9 bytes)")
    parser.add_argument("--keep", action="store_true", help="do not remove the files")
    parser.add_argument("options", nargs="*", help="of optimize")
    settings = parser.parse_args()
    print("| model | layers | target | weights GB | disk GB | seconds | x | peak GB | exit | verification |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in settings.models.split(","):
        full = MODELS[name][1]
        layers = [int(each) for each in settings.layers.split(",") if each] or [full // 4, full // 2, full]
        for target in settings.targets.split(","):
            before = 0.0
            for count in layers:
                before = row(name, count, target, before, settings)


def row(name: str, count: int, target: str, before: float, settings: argparse.Namespace) -> float:
    """Print one row, and return its seconds."""
    with tempfile.TemporaryDirectory(dir=settings.folder) as made:
        folder = Path(made)
        path = MODELS[name][0](folder, count)
        out = folder / "out.onnx"
        command = [
            sys.executable,
            "-m",
            "layoutopt",
            "optimize",
            str(path),
            "-o",
            str(out),
            "-t",
            target,
            "--config",
            "none",
        ]
        seconds, peak, code, printed = limited([*command, *settings.options], int(settings.memory * GB), folder)
        weights = (folder / "model.data").stat().st_size
        disk = sum(each.stat().st_blocks * 512 for each in folder.glob("out*"))
        growth = f"{seconds / before:.1f}" if before else ""
        print(
            f"| {name} | {count} | {target} | {weights / GB:.2f} | {disk / GB:.2f} | {seconds:.0f} | {growth} | "
            f"{peak / GB:.2f} | {code} | {printed} |",
            flush=True,
        )
        if settings.keep:
            shutil.copytree(folder, settings.folder / f"{name}-{count}-{target}", dirs_exist_ok=True)
    return seconds


def limited(command: list[str], memory: int, folder: Path) -> tuple[float, int, int, str]:
    """Seconds of processor time, the peak of anonymous memory in bytes, the exit code, and the line about verification.

    Temporary files go to the same folder as the model, so that its disk is the only one that is used.
    """
    environment = {**os.environ, "TMPDIR": str(folder)}
    log = (folder / "log.txt").open("w+")
    process = subprocess.Popen(
        command,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory)),
    )
    before, peak = resource.getrusage(resource.RUSAGE_CHILDREN), 0
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(POLL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    log.seek(0)
    lines = log.read().splitlines()
    log.close()
    about = [line.strip() for line in lines if "verif" in line] or lines[-1:]
    return seconds, peak, process.returncode, " ".join(" ".join(about).split())


def anonymous_bytes(pid: int) -> int:
    """The resident memory of a process that no file backs."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


if __name__ == "__main__":
    main()
