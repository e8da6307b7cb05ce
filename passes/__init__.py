"""The default pipeline: every pass, in the order in which the passes run."""

from layoutopt.passes.absorb_casts import AbsorbCasts
from layoutopt.passes.assign_formats import AssignFormats
from layoutopt.passes.base import Mode, Pass, Pipeline
from layoutopt.passes.cancel_casts import CancelCasts
from layoutopt.passes.convert_integers import ConvertIntegers
from layoutopt.passes.fold_affines import FoldAffines
from layoutopt.passes.fold_broadcasts import FoldBroadcasts
from layoutopt.passes.fold_constants import FoldConstants
from layoutopt.passes.fold_pads import FoldPads
from layoutopt.passes.insert_casts import InsertCasts
from layoutopt.passes.isolate_units import IsolateUnits
from layoutopt.passes.measure_sizes import MeasureSizes
from layoutopt.passes.merge_maps import MergeMaps
from layoutopt.passes.move_maps import MoveMaps
from layoutopt.passes.pretransform_weights import PretransformWeights
from layoutopt.passes.recognize import Recognize
from layoutopt.passes.recompose import Recompose
from layoutopt.passes.remove_dead import RemoveDead
from layoutopt.passes.share_casts import ShareCasts
from layoutopt.passes.share_constants import ShareConstants

_SIMPLIFY: tuple[Pass, ...] = (
    ShareConstants(),
    IsolateUnits(),
    FoldConstants(),
    MeasureSizes(),
    Recompose(),
    Recognize(),
    FoldBroadcasts(),
    FoldAffines(),
    FoldPads(),
    MoveMaps(),
    MergeMaps(),
    RemoveDead(),
)
_PLAN: tuple[Pass, ...] = (
    AssignFormats(),
    ConvertIntegers(),
    InsertCasts(),
    ShareCasts(),
    CancelCasts(),
    AbsorbCasts(),
)

DEFAULT_PIPELINE = Pipeline((*_SIMPLIFY, *_PLAN, PretransformWeights(), RemoveDead()))
"""For inference: weights are constants, so what depends on them alone is computed ahead of time."""

TRAINING_PIPELINE = Pipeline((MeasureSizes(), *_PLAN))
"""For training: weights change, so they and the ops on them stay, and so do their casts."""


def default_pipeline(mode: Mode) -> Pipeline:
    """The pipeline of a mode."""
    return DEFAULT_PIPELINE if mode == "inference" else TRAINING_PIPELINE


__all__ = [
    "DEFAULT_PIPELINE",
    "TRAINING_PIPELINE",
    "AbsorbCasts",
    "AssignFormats",
    "CancelCasts",
    "ConvertIntegers",
    "FoldAffines",
    "FoldBroadcasts",
    "FoldConstants",
    "FoldPads",
    "InsertCasts",
    "IsolateUnits",
    "MeasureSizes",
    "MergeMaps",
    "MoveMaps",
    "PretransformWeights",
    "Recognize",
    "Recompose",
    "RemoveDead",
    "ShareCasts",
    "ShareConstants",
    "default_pipeline",
]
