"""docs/formats.md agrees with the catalogue and the figures."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from layoutopt.cli.rendering.formats_by_system import formats_by_system, physical_shape_text
from layoutopt.formats import entries, lookup

DOCS = Path(__file__).parents[2] / "docs"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "figures" / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date() -> None:
    """If not: `layoutopt formats --markdown` prints the new one."""
    assert formats_by_system() in (DOCS / "formats.md").read_text()


def test_every_name_is_in_the_table() -> None:
    assert all(f"`{entry.name}`" in formats_by_system() for entry in entries())


@pytest.mark.parametrize(
    ("name", "letters", "formula"),
    [
        ("NCHW", "NCHW", "(N, C, H, W)"),
        ("NCHW32", "NCHW", "(N, ⌈C/32⌉, H, W, 32)"),
        ("KRSCk4c4", "KCRS", "(⌈K/4⌉, R, S, ⌈C/4⌉, 4, 4)"),
    ],
)
def test_formulas(name: str, letters: str, formula: str) -> None:
    assert physical_shape_text(lookup(name), letters) == formula


@pytest.mark.parametrize("name", script().FIGURES)
def test_figures_are_up_to_date(name: str) -> None:
    """If not: python docs/figures/draw.py."""
    assert (DOCS / "figures" / f"{name}.svg").read_text() == script().svg(name)
    assert f"figures/{name}.svg" in (DOCS / "formats.md").read_text()
