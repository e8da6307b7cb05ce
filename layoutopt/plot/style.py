"""Palette, typeface and text fitting of the figures."""

import colorsys

FONT = "Helvetica, Arial, sans-serif"
INK = "#22303c"
FAINT = "#8a97a3"
PAPER = "#ffffff"
PADDING = "#e8e8e8"


def ramp(position: float) -> str:
    """A light colour for a position from 0 to 1, from blue over green and yellow to red."""
    red, green, blue = colorsys.hls_to_rgb(0.62 * (1 - min(max(position, 0.0), 1.0)), 0.82, 0.75)
    return "#" + "".join(f"{round(255 * each):02x}" for each in (red, green, blue))


def hue(index: int) -> str:
    """The `index`th of a sequence of colours that differ clearly from their neighbours: steps of the golden angle."""
    red, green, blue = colorsys.hls_to_rgb((0.58 + index * 0.381966) % 1, 0.8, 0.65)
    return "#" + "".join(f"{round(255 * each):02x}" for each in (red, green, blue))


def size_for(text: str, width: float, largest: float) -> float:
    """The font size at which a text fits a width, at 0.6 times the size per character."""
    return min(largest, width / (0.6 * max(1, len(text))))
