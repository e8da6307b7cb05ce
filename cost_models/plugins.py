"""Cost models of other packages, registered under the entry point group `layoutopt.cost_models`.

[project.entry-points."layoutopt.cost_models"]
my-npu = "my_package.npu:cost_model"        # a CostModel, or a function that makes one
"""

from importlib.metadata import EntryPoint, entry_points

from layoutopt.cost import CostModel
from layoutopt.errors import TargetError

GROUP = "layoutopt.cost_models"


def plugins() -> dict[str, EntryPoint]:
    """The entry points of the installed packages by name, in alphabetical order."""
    return {each.name: each for each in sorted(entry_points(group=GROUP), key=lambda each: each.name)}


def load_plugin(entry: EntryPoint) -> CostModel:
    """The cost model that an entry point names.

    Raises:
        TargetError: the entry point cannot be loaded, or is not a cost model.
    """
    where = f"{entry.name} ({entry.value})"
    try:
        found = entry.load()
        model = found() if callable(found) and not isinstance(found, CostModel) else found
    except Exception as error:  # any error of the other package
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise TargetError(f"cannot be loaded: {what}", where=where, hint="mend the package that has it") from error
    if isinstance(model, type) or not isinstance(model, CostModel):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        hint = "it needs name, dialect, preferred_formats, kernel_seconds and conversion_seconds, see layoutopt.cost.CostModel"
        raise TargetError(f"is no cost model but a {kind}", where=where, hint=hint)
    return model


__all__ = ["GROUP", "load_plugin", "plugins"]
