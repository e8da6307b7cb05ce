"""Fuzzers: random graphs that must compute the same afterwards, and damaged files that must end in one line.

They take their samples of ops from the laws of layout rules, so an op gets into the graphs by having a rule:

    python -m tests.fuzz.graphs --examples 10000 --seed 0 --processes 2
    python -m tests.fuzz.files --examples 100000 --seed 0 --processes 2

One number makes one example. `--seed N --examples 1 --keep FOLDER` makes it again, writes it down and makes it smaller.
"""

import sys
from pathlib import Path

_LAWS = str(Path(__file__).parent.parent / "laws")
if _LAWS not in sys.path:
    sys.path.append(_LAWS)
