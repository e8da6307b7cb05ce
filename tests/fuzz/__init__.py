"""Fuzzers: random graphs and mutants of real models must compute the same afterwards, damaged files must end in one line.

They take their samples of ops from the laws of layout rules, so an op gets into the graphs by having a rule:

    python -m tests.fuzz.graphs --examples 10000 --seed 0 --processes 2
    python -m tests.fuzz.files --examples 100000 --seed 0 --processes 2
    python -m tests.fuzz.structure --examples 20000 --seed 0 --processes 2

One number makes one example. `--seed N --examples 1 --keep FOLDER` makes it again, writes it down and makes it smaller.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
for _folder in ("tests/laws", "tests/e2e", "examples"):
    if str(_ROOT / _folder) not in sys.path:
        sys.path.append(str(_ROOT / _folder))
