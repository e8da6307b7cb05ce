"""Cost models: estimated times of ops and conversions on one target, in seconds."""

from layoutopt.cost.model import (
    CostModel,
    Device,
    DeviceLink,
    MeasuredPrices,
    MultiTargetCostModel,
    Platform,
    PropagatedFormats,
    for_targets,
    targets_of,
)
from layoutopt.cost.prices import Absorbed, Epilogues, Prices, priced_with
