"""`python -m layoutopt` is `layoutopt`."""

import sys

from layoutopt.cli import main

if __name__ == "__main__":  # worker processes of Dask import this module under another name
    sys.exit(main())
