"""Figures of formats as SVG: the memory of a tensor.

figure = draw_memory(Layout.packed(lookup("NCHW4c"), (1, 6, 3, 4)))
figure.save_svg("nchw4c.svg")

The library is installed by the extra `layoutopt[plot]`; without them the import raises a LayoutoptError.
"""

from layoutopt.errors import LayoutoptError

try:
    from layoutopt.plot.memory import draw_memory
except ModuleNotFoundError as error:
    if error.name != "drawsvg":
        raise
    raise LayoutoptError(
        "figures need the package drawsvg", hint="install it with: pip install 'layoutopt[plot]'"
    ) from error

__all__ = ["draw_memory"]
