"""Random examples: graphs, mutants of real networks, damaged files. The command is `python benchmarks/campaign.py`.

The graphs use the sample ops of the laws of layout rules, so every op with a rule is covered. Each seed is one example.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
for _folder in ("tests/laws", "tests/e2e", "tests/backend", "examples", "benchmarks"):
    if str(_ROOT / _folder) not in sys.path:
        sys.path.append(str(_ROOT / _folder))
