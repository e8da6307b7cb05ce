"""Benchmark of models against each other, with a test whether the difference is more than noise.

    from layoutopt.bench import bench
    report = bench(["model.onnx", "out.onnx"], threads=1)
    report.models[1].speed_up      # mean of the blocks, confidence interval, quartiles, verdict

All models run in one process, in turns, on the same random inputs. Ratios are taken within each round, in which other load of
the machine affects both models; the report has the mean ratio of the blocks with its confidence interval.

Modules are loaded on first use, because the process that measures memory should load only one runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutopt.bench.bench_report import BenchReport
    from layoutopt.bench.benchmark import bench

_MODULES = {"BenchReport": "layoutopt.bench.bench_report", "bench": "layoutopt.bench.benchmark"}

__all__ = ["BenchReport", "bench"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
