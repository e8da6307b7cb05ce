"""Benchmark of models against each other, with a test whether the difference is more than noise.

    from layoutopt.bench import bench
    report = bench(["model.onnx", "out.onnx"], threads=1)
    report.models[1].speed_up      # mean of the blocks, confidence interval, quartiles, verdict

All models run in one process, in turns, on the same random inputs. Ratios are taken within each round, in which other load of
the machine affects both models; the report has the mean ratio of the blocks with its confidence interval.
"""

from layoutopt.bench.bench_report import BenchReport
from layoutopt.bench.benchmark import bench

__all__ = ["BenchReport", "bench"]
