"""Random graphs: an example is optimised with random options, and must be equal and idempotent."""

from pathlib import Path

import onnx

from . import oracle
from .cases import Case, case_of
from .isolation import Verdict, in_separate_process
from .oracle import evaluate
from .reduce import reduced


def examine(seed: int) -> Verdict:
    """The verdict on one example."""
    case = case_of(seed)
    return Verdict("no graph") if case is None else evaluate(case)


def keep(seed: int, outcome: Verdict, folder: Path) -> None:
    """Save a failing example and its reduced form."""
    case = case_of(seed)
    assert case is not None
    _save(case, outcome, folder / "model")

    def again(smaller: Case) -> Verdict:
        return in_separate_process(lambda: evaluate(smaller))

    _save(reduced(case, again), outcome, folder / "reduced")


def _save(case: Case, outcome: Verdict, path: Path) -> None:
    """Write the model of a case, and its text and options."""
    onnx.save(case.model, path.with_suffix(".onnx"))
    path.with_suffix(".txt").write_text(f"{outcome.kind}: {outcome.detail}\n\n{case!r}\n")


def explain(seed: int, outcome: Verdict) -> Verdict:
    """The outcome with the component that ended the process."""
    case = case_of(seed)
    return outcome if case is None else oracle.explain(case)
