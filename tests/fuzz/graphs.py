"""The campaign over random graphs: `python -m tests.fuzz.graphs --examples 10000 --seed 0 --processes 2`."""

import sys
from pathlib import Path

import onnx

from . import oracle
from .campaign import Outcome, in_separate_process, main
from .cases import Case, case_of
from .oracle import Verdict, evaluate
from .reduce import reduced


def examine(seed: int) -> Verdict:
    """The verdict on one example."""
    case = case_of(seed)
    return Verdict("no graph") if case is None else evaluate(case)


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Save a reduced failing example."""
    case = case_of(seed)
    assert case is not None

    def again(smaller: Case) -> Outcome:
        return in_separate_process(lambda: evaluate(smaller))

    small = reduced(case, again)
    onnx.save(small.model, folder / f"{seed}.onnx")
    (folder / f"{seed}.txt").write_text(f"{outcome.kind}: {outcome.detail}\n\n{small!r}\n")


def explain(seed: int, outcome: Outcome) -> Outcome:
    """The outcome with the component that ended the process."""
    case = case_of(seed)
    return outcome if case is None else oracle.explain(case)


if __name__ == "__main__":
    sys.exit(main("graphs", examine, keep, explain))
