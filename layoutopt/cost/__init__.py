"""What a cost model is: a judge of what is wise on one hardware. Its unit is the second.

A cost model never decides whether something is legal; it prices what the layout rules list. It may price anything: a
signature that no kernel has costs what its emulation costs, not infinity.
"""

from layoutopt.cost.model import CostModel, Emulating
from layoutopt.cost.several import Several
from layoutopt.cost.sized import SizedCostModel, sized

__all__ = ["CostModel", "Emulating", "Several", "SizedCostModel", "sized"]
