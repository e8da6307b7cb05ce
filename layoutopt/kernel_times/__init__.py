"""Times of single kernels: the nodes that onnxruntime executes for a model, timed one by one on this machine.

optimised form of onnxruntime + trace -> executed kernels -> one model per distinct kernel -> times, kept in a store
"""

from layoutopt.kernel_times.executed import ExecutedKernel, executed_kernels
from layoutopt.kernel_times.machine import Machine
from layoutopt.kernel_times.run_estimate import RunEstimate, estimate_run
from layoutopt.kernel_times.store import KernelStore, default_folder

__all__ = [
    "ExecutedKernel",
    "KernelStore",
    "Machine",
    "RunEstimate",
    "default_folder",
    "estimate_run",
    "executed_kernels",
]
