"""Times of single kernels, timed one by one on this machine: the nodes that onnxruntime executes, and the kernels of plans.

optimised form of onnxruntime + trace -> executed kernels -> one model per distinct kernel -> times, kept in a store
plan -> its ops and conversions -> one model per distinct kernel -> times -> prices -> plan, until all its kernels have times
"""

from layoutopt.kernel_times.executed import ExecutedKernel, executed_kernels
from layoutopt.kernel_times.machine import Machine
from layoutopt.kernel_times.refinement import RefinedPlan, refine_prices
from layoutopt.kernel_times.run_estimate import RunEstimate, estimate_run
from layoutopt.kernel_times.store import KernelStore, default_folder
from layoutopt.kernel_times.timed_batches import RequestedTimes, time_graphs

__all__ = [
    "ExecutedKernel",
    "KernelStore",
    "Machine",
    "RefinedPlan",
    "RequestedTimes",
    "RunEstimate",
    "default_folder",
    "estimate_run",
    "executed_kernels",
    "refine_prices",
    "time_graphs",
]
