"""Draw the figures of docs/formats.md again.

python docs/figures/draw.py
"""

from pathlib import Path

from layoutopt.formats import Layout, lookup
from layoutopt.plot import draw_memory

FOLDER = Path(__file__).parent
FIGURES = {
    "nchw": ("NCHW", (1, 3, 3, 4), "", "NCHW"),
    "nhwc": ("NHWC", (1, 3, 3, 4), "", "NCHW"),
    "nchw4c": ("NCHW4", (1, 6, 3, 4), "", "NCHW"),
    "chwn4": ("CHWN4", (4, 4, 2, 2), "", "NCHW"),
    "nc1hwc0": ("NC1HWC0", (1, 17, 2, 2), "float16", "NCHW"),
    "nhwcd4": ("NHWCD4", (1, 6, 3, 3), "", "NCHW"),
    "row_major": ("RowMajor", (6, 8), "", "MN"),
    "column_major": ("ColumnMajor", (6, 8), "", "MN"),
    "row_major_interleaved": ("RowMajorInterleaved<4>", (8, 6), "", "MN"),
    "column_major_interleaved": ("ColumnMajorInterleaved<4>", (6, 8), "", "MN"),
    # Fractals of 4 x 4 in the place of 16 x 16, which would not fit on a page.
    "fractal_nz": ("NM4m4n", (7, 12), "", "MN"),
    "fractal_zz": ("MN4m4n", (8, 12), "", "MN"),
    "fractal_zn": ("MN4n4m", (8, 12), "", "MN"),
    "oihw4i4o": ("KCRSc4k4", (4, 8, 2, 2), "", "KCRS"),
}


TITLES = {"fractal_nz": "FRACTAL_NZ", "fractal_zz": "FRACTAL_ZZ", "fractal_zn": "FRACTAL_ZN"}


def svg(name: str) -> str:
    """One figure."""
    format, shape, dtype, axes = FIGURES[name]
    figure = draw_memory(Layout.packed(lookup(format, dtype or None), shape), TITLES.get(name, format), axes)
    return str(figure.as_svg()) + "\n"


def main() -> None:
    """Draw all."""
    for name in FIGURES:
        (FOLDER / f"{name}.svg").write_text(svg(name))


if __name__ == "__main__":
    main()
