"""The checker is small, and imports nothing of the compiler."""

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import layoutopt.certificate.checker

FOLDER = Path(layoutopt.certificate.checker.__path__[0])
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(path: Path) -> int:
    """Lines that are neither empty, nor comments, nor docstrings."""
    source = path.read_text()
    texts = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for each in tokens if each.type not in _LAYOUT for line in range(each.start[0], each.end[0] + 1)}
    return len(lines - texts)


def test_the_checker_is_small() -> None:
    assert sum(map(lines_of_code, FOLDER.rglob("*.py"))) <= 1500


def test_the_checker_runs_without_the_compiler() -> None:
    """Importing the checker imports the error classes and the version, and what layoutopt itself imports."""
    code = (
        "import sys; import layoutopt.certificate.checker.check;"
        "print(*sorted(name for name in sys.modules if name.startswith('layoutopt.')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in found if not name.startswith("layoutopt.certificate")}
    package = {
        "layoutopt.runtime",
        "layoutopt.runtime.telemetry",
    }  # layoutopt/__init__.py disables onnxruntime's telemetry
    assert others <= {"layoutopt.errors", "layoutopt.version"} | package
