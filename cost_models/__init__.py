"""Cost models of hardware targets: roofline models of the numbers in target files, and models of other packages."""

from layoutopt.cost_models.registry import find_target, load_target, target_names, target_texts
from layoutopt.cost_models.roofline import RooflineModel
from layoutopt.cost_models.runtime_spec import RuntimeSpec, find_runtime, runtime_names, runtime_of
from layoutopt.cost_models.spec import TargetSpec
