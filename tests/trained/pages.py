"""Draws scanned pages: lines of dark strokes on white paper, and a round red seal. Text detectors mark nothing on noise."""

import numpy as np

LINE, LETTER, HEIGHT = 28, 11, 14  # pixels from line to line and from letter to letter, and the height of a letter


def pages(shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Pages as (N, 3, H, W) in blue, green and red between 0 and 1."""
    samples, channels, height, width = shape
    drawn = np.ones(shape)
    for page in drawn:
        for top in range(12, height - HEIGHT, LINE):
            _draw_line(page, top, width, generator)
        _stamp(page, generator)
    return np.clip(drawn + generator.normal(0, 0.02, (samples, channels, height, width)), 0, 1)


def _draw_line(page: np.ndarray, top: int, width: int, generator: np.random.Generator) -> None:
    """Draws words of letters, each of three vertical and three horizontal strokes."""
    left = LETTER
    while left < width - HEIGHT:
        for _ in range(3):
            row, column = top + generator.integers(HEIGHT - 2), left + generator.integers(LETTER - 4)
            page[:, row : row + 2, left : left + generator.integers(4, LETTER - 2)] = generator.uniform(0, 0.25)
            page[:, top : top + HEIGHT, column : column + 2] = generator.uniform(0, 0.25)
        left += LETTER if generator.random() < 0.85 else 2 * LETTER


def _stamp(page: np.ndarray, generator: np.random.Generator) -> None:
    """Draws a red ring with radial strokes inside of it onto white paper."""
    _, height, width = page.shape
    radius = 0.35 * min(height, width)
    rows, columns = np.mgrid[:height, :width]
    distance = np.hypot(rows - height / 2, columns - width / 2) / radius
    angle = np.arctan2(rows - height / 2, columns - width / 2)
    strokes = np.sin(14 * angle + generator.uniform(0, 6)) + np.sin(45 * angle) > 0.4
    ink = ((distance > 0.92) & (distance < 1)) | ((distance > 0.6) & (distance < 0.85) & strokes)
    page[:, distance < 1] = 1
    page[:2, ink], page[2, ink] = 0.2, 0.85
