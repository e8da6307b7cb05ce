"""The names that the manual of the Acme NPU has for formats."""

from layoutopt.extend import format_system

FORMATS = format_system(
    "Acme",
    "Acme NPU programmer's manual, chapter 2",
    ("TILE8", "NCHW8c", "NCHW", "feature maps of the convolution unit"),
    ("TILE8_W", "OIHW8i8o", "OIHW", "filters of the convolution unit"),
)
