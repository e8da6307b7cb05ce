"""The passes before lowering, one per file, in the order in which they run; `Dialect.passes` are those after it."""

from typing import Any, get_args

from layoutopt.passes.absorb_casts import AbsorbCasts
from layoutopt.passes.assign_formats import AssignFormats
from layoutopt.passes.base import Mode, Pass, Pipeline
from layoutopt.passes.cancel_casts import CancelCasts
from layoutopt.passes.check_gain import CheckGain
from layoutopt.passes.convert_integers import ConvertIntegers
from layoutopt.passes.evaluate_extents import EvaluateExtents
from layoutopt.passes.fold_affines import FoldAffines
from layoutopt.passes.fold_broadcasts import FoldBroadcasts
from layoutopt.passes.fold_constants import FoldConstants
from layoutopt.passes.fold_pads import FoldPads
from layoutopt.passes.fold_repeats import FoldRepeats
from layoutopt.passes.fuse_patterns import FusePatterns
from layoutopt.passes.hoist_from_qdq_groups import HoistFromQdqGroups
from layoutopt.passes.insert_casts import InsertCasts
from layoutopt.passes.isolate_qdq_groups import IsolateQdqGroups
from layoutopt.passes.merge_maps import MergeMaps
from layoutopt.passes.move_maps import MoveMaps
from layoutopt.passes.pretransform_weights import PretransformWeights
from layoutopt.passes.raise_patterns import RaisePatterns
from layoutopt.passes.remove_dead import RemoveDead
from layoutopt.passes.remove_identities import RemoveIdentities
from layoutopt.passes.share_casts import ShareCasts
from layoutopt.passes.share_constants import ShareConstants
from layoutopt.registry import EntryPoints, instance_of

_SIMPLIFY: tuple[Pass, ...] = (
    ShareConstants(),
    RemoveIdentities(),
    HoistFromQdqGroups(),
    IsolateQdqGroups(),
    FoldConstants(),
    EvaluateExtents(),
    FusePatterns(),
    RaisePatterns(),
    FoldBroadcasts(),
    FoldRepeats(),
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
"""For inference: weights are constants, so ops that depend on constants alone are computed ahead of time."""

TRAINING_PIPELINE = Pipeline((EvaluateExtents(), *_PLAN))
"""For training: weights change, so the weights, the ops on them and their casts stay in the graph."""


def _loaded(found: Any) -> Pass:
    """The pass that an entry point refers to.

    Raises:
        TypeError, ValueError: it is no pass, or sets neither or both of `before` and `after`.
    """
    step: Pass = instance_of(Pass, "it has to derive from layoutopt.Pass")(found)
    if bool(step.before) == bool(step.after):
        raise ValueError("has no single position in the pipeline: set either before or after to the name of a pass")
    return step


EXTENSIONS = EntryPoints("layoutopt.passes", _loaded)
"""Passes of installed packages."""


def default_pipeline(mode: Mode) -> Pipeline:
    """The pipeline of a mode up to lowering, with the passes of installed packages that name a pass in it.

    Raises:
        ExtensionError: a pass of a package cannot be loaded.
    """
    return (DEFAULT_PIPELINE if mode == "inference" else TRAINING_PIPELINE).extended([*EXTENSIONS.load_all().values()])


def extensions_behind_lowering() -> dict[str, Pass]:
    """The passes of installed packages, by entry point, that name no pass of a mode's pipeline up to lowering.

    Raises:
        ExtensionError: a pass of a package cannot be loaded.
    """
    placed = {id(each) for mode in get_args(Mode) for each in default_pipeline(mode).passes}
    return {name: each for name, each in EXTENSIONS.load_all().items() if id(each) not in placed}


__all__ = [
    "DEFAULT_PIPELINE",
    "TRAINING_PIPELINE",
    "AbsorbCasts",
    "AssignFormats",
    "CancelCasts",
    "CheckGain",
    "ConvertIntegers",
    "EvaluateExtents",
    "FoldAffines",
    "FoldBroadcasts",
    "FoldConstants",
    "FoldPads",
    "FoldRepeats",
    "FusePatterns",
    "HoistFromQdqGroups",
    "InsertCasts",
    "IsolateQdqGroups",
    "MergeMaps",
    "MoveMaps",
    "PretransformWeights",
    "RaisePatterns",
    "RemoveDead",
    "ShareCasts",
    "ShareConstants",
    "default_pipeline",
    "extensions_behind_lowering",
]
