"""The pipeline of `layoutopt.optimize`: the passes before lowering, lowering, and the passes of the dialect."""

from dataclasses import replace

from layoutopt.dialects import DIALECTS, Dialect, Lower
from layoutopt.driver import arguments
from layoutopt.driver.arguments import Target
from layoutopt.errors import ExtensionError
from layoutopt.passes import EXTENSIONS, CheckGain, default_pipeline, extensions_behind_lowering
from layoutopt.passes.base import Mode, Pass, Pipeline
from layoutopt.registry import package_of


def pipeline_for(mode: Mode, target: Target, runtime: str | None, dialect: str | None) -> Pipeline:
    """All passes of a mode for a target, a runtime and a dialect; None for the target's own.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    _, written = arguments.runtime_and_dialect(runtime, dialect, arguments.cost_model_of(target))
    return with_lowering(default_pipeline(mode), written)


def with_lowering(pipeline: Pipeline, dialect: Dialect) -> Pipeline:
    """The pipeline followed by the passes from lowering on; as it is if it has a `Lower` of its own.

    Raises:
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    if any(isinstance(step, Lower) for step in pipeline.passes):
        return pipeline
    return replace(pipeline, passes=(*pipeline.passes, *lowering_passes(dialect)))


def lowering_passes(dialect: Dialect) -> tuple[Pass, ...]:
    """`check-gain`, `lower` and the passes of the dialect, with the passes of installed packages that name one of them.

    Raises:
        ExtensionError: a pass of a package cannot be loaded, or names a pass that is in no pipeline.
    """
    added = extensions_behind_lowering()
    known = {step.name for each in DIALECTS.values() for step in _passes_of(each)} if added else set()
    known |= {each.name for each in added.values()}
    for name, each in added.items():
        if (neighbour := each.before or each.after) not in known:
            where = f"package {package_of(EXTENSIONS.found[name])}: pass {each.name}"
            raise ExtensionError(f"no pass '{neighbour}' to run next to", where=where, hint="see layoutopt list passes")
    return Pipeline(_passes_of(dialect)).extended(list(added.values())).passes


def _passes_of(dialect: Dialect) -> tuple[Pass, ...]:
    return (CheckGain(), Lower(dialect), *dialect.passes)


__all__ = ["lowering_passes", "pipeline_for", "with_lowering"]
