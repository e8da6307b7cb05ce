"""`python -m layoutopt` is `layoutopt`."""

from layoutopt.cli import run

if __name__ == "__main__":  # worker processes of Dask import this module under another name
    run()
