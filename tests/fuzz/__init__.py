"""Fuzzers: optimised random graphs and mutants of real models must be equivalent, damaged files must give a one-line error.

The graphs use the sample ops of the laws of layout rules, so every op with a rule is covered:

    python -m tests.fuzz.graphs --examples 10000 --seed 0 --processes 2
    python -m tests.fuzz.files --examples 100000 --seed 0 --processes 2
    python -m tests.fuzz.structure --examples 20000 --seed 0 --processes 2

Each seed is one example. `--seed N --examples 1 --keep FOLDER` repeats, saves and reduces it.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
for _folder in ("tests/laws", "tests/e2e", "examples"):
    if str(_ROOT / _folder) not in sys.path:
        sys.path.append(str(_ROOT / _folder))
