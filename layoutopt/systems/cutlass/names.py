"""The layouts by their names."""

import difflib
import re

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass import layouts, tensor_op
from layoutopt.systems.cutlass.layouts import LayoutConcept

_NAME = re.compile(r"(\w+)(?:<([0-9, ]+)>)?")


def layout_types() -> tuple[type[LayoutConcept], ...]:
    """All layouts, sorted by name; templates have no arguments."""
    found = (each for module in (layouts, tensor_op) for each in vars(module).values())
    kinds = {each for each in found if isinstance(each, type) and issubclass(each, LayoutConcept)}
    return tuple(
        sorted((kind for kind in kinds if hasattr(kind, "tile") or kind.parameters), key=lambda kind: kind.__name__)
    )


def layout_type(name: str) -> type[LayoutConcept]:
    """The layout of a name like `RowMajor` or `TensorOpMultiplicandCrosswise<16,32>`.

    Raises:
        FormatError: there is no such layout, or it has other parameters.
    """
    known = {kind.__name__: kind for kind in layout_types()}
    match = _NAME.fullmatch(name.strip())
    kind = known.get(match[1]) if match else None
    if match is None or kind is None:
        close = difflib.get_close_matches(name.partition("<")[0], known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise FormatError("no layout of CUTLASS", where=name, hint=hint)
    if match[2] is None:
        kind.check_bound()
        return kind
    try:
        arguments = tuple(map(int, match[2].split(",")))
    except ValueError:
        raise FormatError("arguments are integers", where=name) from None
    return kind[arguments]
