"""Pinned formats: from the text of a pin to the format of a value.

The letters of a pin are those of the value's axes, as reports and `inspect` print them. Other letters have their default
meaning: NCHW are the axes of a feature map in logical order. A name whose blocks depend on the element type, such as NC1HWC0,
has those of the value's type.
"""

from layoutopt.errors import FormatError
from layoutopt.formats import Format, lookup
from layoutopt.ir.types import DType, Value


def pin_text(pin: Format | str) -> str:
    """The text of a pin, with numbers for the axes of a Format, which has no letters.

    Raises:
        FormatError: a text is neither a name of the catalogue nor a notation, whatever the letters of the axes.
    """
    if isinstance(pin, Format):
        return pin.numbered()
    try:
        lookup(pin, DType.FLOAT32.label)  # any type: that of the value is not known yet
    except FormatError as error:
        try:
            Format.parse(pin, "".join(sorted({letter for letter in pin if letter.isupper()})))
        except FormatError:
            raise error from None
    return pin


def pinned_format(text: str, value: Value) -> tuple[Format, str]:
    """The format that a pin gives a value, and the letters of the axes under which it was read; empty for the default ones.

    Raises:
        FormatError: the text has neither the letters of the value's axes nor letters with a default meaning.
    """
    letters, dtype = value.axis_letters or "", None if value.dtype is None else value.dtype.label
    if letters:
        try:
            return lookup(text, dtype, letters), letters
        except FormatError:
            pass  # other letters
    return lookup(text, dtype), ""


__all__ = ["pin_text", "pinned_format"]
