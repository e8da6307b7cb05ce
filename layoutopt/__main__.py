"""`python -m layoutopt` is `layoutopt`."""

import sys

from layoutopt.cli import main

sys.exit(main())
