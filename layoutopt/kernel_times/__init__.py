"""Times of single kernels of plans, timed one by one on this machine.

plan -> its ops and conversions -> one model per distinct kernel -> times, kept in a store -> prices -> plan, until all its
kernels have times
"""

from layoutopt.kernel_times.refinement import RefinedPlan, Refinement
from layoutopt.kernel_times.store import KernelStore, Machine, RequestedTimes, default_folder
