"""The passes before lowering, in the order in which they run; `Dialect.passes` are those after it."""

from typing import Any, get_args

from layoutopt.passes.base import Mode, Pass, Pipeline
from layoutopt.passes.casts import (
    AbsorbCasts,
    CancelCasts,
    ConvertIntegers,
    InsertCasts,
    PretransformWeights,
    ShareCasts,
)
from layoutopt.passes.folding import FoldAffines, FoldBroadcasts, FoldPads, FoldRepeats, FoldScores
from layoutopt.passes.maps import MergeMaps, MoveMaps
from layoutopt.passes.planning import AssignFormats, PlaceOps
from layoutopt.passes.qdq_groups import DequantizeWeights, HoistFromQdqGroups, IsolateQdqGroups
from layoutopt.passes.simplify import (
    EvaluateExtents,
    FoldConstants,
    FusePatterns,
    RaisePatterns,
    Reformulate,
    RemoveDead,
    RemoveIdentities,
    ShareConstants,
)
from layoutopt.registry import EntryPoints, instance_of

_SIMPLIFY: tuple[Pass, ...] = (
    ShareConstants(),
    RemoveIdentities(),
    HoistFromQdqGroups(),
    IsolateQdqGroups(),
    DequantizeWeights(),
    Reformulate(),
    FoldConstants(),
    EvaluateExtents(),
    FusePatterns(),
    RaisePatterns(),
    FoldBroadcasts(),
    RemoveDead(),
    FoldRepeats(),
    FoldAffines(),
    FoldPads(),
    FoldScores(),
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

DEFAULT_PIPELINE = Pipeline((*_SIMPLIFY, *_PLAN, PretransformWeights(), RemoveDead(), PlaceOps()))
"""For inference: weights are constants, so ops that depend on constants alone are computed ahead of time."""

TRAINING_PIPELINE = Pipeline((EvaluateExtents(), *_PLAN, PlaceOps()))
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
    return (DEFAULT_PIPELINE if mode == "inference" else TRAINING_PIPELINE).extended([*EXTENSIONS.values()])


def extensions_behind_lowering() -> dict[str, Pass]:
    """The passes of installed packages, by entry point, that name no pass of a mode's pipeline up to lowering.

    Raises:
        ExtensionError: a pass of a package cannot be loaded.
    """
    placed = {id(each) for mode in get_args(Mode) for each in default_pipeline(mode).passes}
    return {name: each for name, each in EXTENSIONS.items() if id(each) not in placed}
