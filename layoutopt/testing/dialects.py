"""The law of dialects: a model that is written in a dialect is equivalent to the original."""

from os import PathLike

import onnx

from layoutopt.api import optimize
from layoutopt.driver.arguments import Target

_TARGETS = ("gpu-hopper", "ascend-910b", "cpu-avx2")  # plans in channels-last order, in fractals and in blocks


def check_dialect(
    name: str, *models: str | PathLike[str] | onnx.ModelProto, targets: tuple[Target, ...] = _TARGETS
) -> int:
    """Assert that models which are planned for several targets and written in a dialect are equivalent to the originals.

    Args:
        name: the name of the dialect.
        models: the models.
        targets: the targets; each plan may have other formats.

    Returns:
        The number of models that were rewritten, over all targets.

    Raises:
        AssertionError: a result could not be compared with the original.
        VerificationError: a result is not equivalent to its original.
    """
    changed = 0
    for number, model in enumerate(models):
        for target in targets:
            report = optimize(model, target, dialect=name).report
            assert report.verification.status == "passed", f"model {number}: {report.verification.reason}"
            changed += report.changed
    return changed


__all__ = ["check_dialect"]
