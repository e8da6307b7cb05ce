"""Durations and sizes as text, with three significant digits."""


def seconds(value: float) -> str:
    """A duration with three significant digits, in s, ms, µs or ns."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale * 0.9995:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0"


def size(count: int) -> str:
    """A number of bytes with three significant digits, in GB, MB, kB or B."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale * 0.9995:
            return f"{_digits(count / scale)} {unit}"
    return f"{count} B"


def _digits(value: float) -> str:
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
