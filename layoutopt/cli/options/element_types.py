"""Element types on the command line."""

from layoutopt.errors import FormatError
from layoutopt.ir.types import DType


def parse_dtype(name: str) -> DType:
    """The element type with a name such as `float16`, in any case.

    Raises:
        FormatError: there is no such element type.
    """
    found = next((each for each in DType if each.label == name.lower()), None)
    if found is None:
        labels = ", ".join(each.label for each in DType if each is not DType.STRING)
        raise FormatError("not an element type", where=name, hint=f"there are {labels}")
    return found
