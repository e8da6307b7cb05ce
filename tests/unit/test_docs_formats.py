"""The generated tables of formats and the figures agree with the catalogue."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def script(name: str = "figures/draw.py") -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", script().FIGURES)
def test_figures_are_up_to_date(name: str) -> None:
    """If not: python docs/figures/draw.py."""
    assert (DOCS / "figures" / f"{name}.svg").read_text() == script().svg(name)
    assert f"figures/{name}.svg" in (DOCS / "formats.md").read_text()
