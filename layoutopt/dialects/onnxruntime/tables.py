"""onnxruntime's kernels beyond ONNX: the table `kernels.toml` beside this file."""

import tomllib
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("kernels.toml")


@cache
def kernels() -> frozenset[tuple[str, str]]:
    """The kernels that the dialect may write, as domain and op type; a test checks them against the installed onnxruntime."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["kernel"]
    return frozenset((row["domain"], row["op"]) for row in rows)
