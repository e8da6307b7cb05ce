"""Figures as SVG: the memory of a tensor in a format, and the plan of a model.

figure = draw_memory(Layout.packed(lookup("NCHW4c"), (1, 6, 3, 4)))
figure.save_svg("nchw4c.svg")

The plot libraries are installed by the extra `layoutopt[plot]`; without them the import raises a LayoutoptError.
"""

from layoutopt.errors import LayoutoptError

try:
    from layoutopt.plot.memory import draw_memory
    from layoutopt.plot.plan import draw_plan
except ModuleNotFoundError as error:
    library = (error.name or "").partition(".")[0]
    if library not in ("drawsvg", "grandalf"):
        raise
    raise LayoutoptError(
        f"figures need the package {library}", hint="install it with: pip install 'layoutopt[plot]'"
    ) from error

__all__ = ["draw_memory", "draw_plan"]
