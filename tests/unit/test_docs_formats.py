"""The generated tables of formats and the figures agree with the catalogue."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from layoutopt.formats import entries, lookup

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str = "figures/draw.py") -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = script("generate/format_tables.py")


def test_every_name_is_in_the_generated_tables() -> None:
    tables = TABLES.formats_by_system()
    assert all(f"`{entry.name}`" in tables for entry in entries())


@pytest.mark.parametrize(
    ("name", "letters", "formula"),
    [
        ("NCHW", "NCHW", "(N, C, H, W)"),
        ("NCHW32", "NCHW", "(N, ⌈C/32⌉, H, W, 32)"),
        ("KRSCk4c4", "KCRS", "(⌈K/4⌉, R, S, ⌈C/4⌉, 4, 4)"),
    ],
)
def test_formulas(name: str, letters: str, formula: str) -> None:
    assert TABLES.physical_shape_text(lookup(name), letters) == formula


@pytest.mark.parametrize("name", script().FIGURES)
def test_figures_are_up_to_date(name: str) -> None:
    """If not: python docs/figures/draw.py."""
    assert (DOCS / "figures" / f"{name}.svg").read_text() == script().svg(name)
    assert f"figures/{name}.svg" in (DOCS / "formats.md").read_text()
