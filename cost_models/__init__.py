"""Cost models: what is wise on one hardware, in seconds, by a roofline over the numbers in a target file."""

from layoutopt.cost_models.registry import find_target, load_target, target_names
from layoutopt.cost_models.roofline import RooflineModel
from layoutopt.cost_models.spec import TargetSpec

__all__ = ["RooflineModel", "TargetSpec", "find_target", "load_target", "target_names"]
