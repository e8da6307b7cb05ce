"""Random graphs, mutants, damaged files, ONNX's backend suite, the zoo and injected faults in one campaign.

    python benchmarks/campaign.py --minutes 480 --jobs 2 --output FOLDER       # all parts; again: goes on
    python benchmarks/campaign.py --only graphs:129                            # repeats one example

The exit code is 1 if an example has failed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzz.campaign.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
