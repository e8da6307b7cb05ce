"""Tables of the named formats: one row per format, one column per system."""

from collections.abc import Iterator

from layoutopt.formats import Entry, Format, entries

_COLUMNS = ("MegEngine", "oneDNN", "Ascend", "CUTLASS", "TVM", "PyTorch")
_FEATURES, _FILTERS, _MATRICES = "Feature maps", "Filters", "Matrices"
_C0 = 9973  # replaces {C0} while a notation is parsed: no format has such blocks
_BEYOND = """\
### Formats beyond the format algebra

| physical shape | name | used for |
|---|---|---|
| (G·C1·H·W, N1, 16, C0) | Ascend `FRACTAL_Z` with groups | filters of grouped convolutions: `formats.ascend.GroupedFractalZ` |
| (⌈4·H·W/C0⌉, N1, 16, C0) | Ascend `FRACTAL_Z_C04` | filters of at most four input channels: `formats.ascend.FractalZC04` |
| (C1, H, W, N, C0, C0) | Ascend `C1HWNCoC0` | depthwise filters, one square per 16 channels: `formats.ascend.C1HWNCoC0` |
"""


def formats_by_system() -> str:
    """All named formats as Markdown tables: feature maps, filters, matrices."""
    parts = []
    for role in (_FEATURES, _FILTERS, _MATRICES):
        parts += [f"### {role}\n", *_table(role), ""]
    return "\n".join([*parts, _BEYOND])


def physical_shape_text(format: Format, letters: str) -> str:
    """The physical shape as a formula: one extent per dimension, `⌈C/16⌉` for the outer dimension of a blocked axis."""
    extents = []
    for part in format.parts:
        block, letter = format.block(part.axis), letters[part.axis]
        extents.append(str(part.block) if part.block else letter if block == 1 else f"⌈{letter}/{block}⌉")
    return f"({', '.join(extents)})"


def _table(role: str) -> Iterator[str]:
    yield f"| format | physical shape | {' | '.join(_COLUMNS)} | used for |"
    yield "|" + "---|" * (len(_COLUMNS) + 3)
    rows: dict[Format, list[Entry]] = {}
    for entry in entries():
        if _role(entry) == role:
            rows.setdefault(Format.parse(_with(str(_C0), entry.notation), entry.axes), []).append(entry)
    for format, found in rows.items():
        letters = found[0].axes
        names = (", ".join(f"`{each.name}`" for each in found if each.system == system) for system in _COLUMNS)
        notes = "; ".join(dict.fromkeys(each.note for each in found if each.note))
        shape = physical_shape_text(format, letters).replace(str(_C0), "C0")
        yield f"| `{found[0].notation}` | {shape} | {' | '.join(names)} | {notes} |"


def _with(number: str, notation: str) -> str:
    return notation.replace("{C0}", number)


def _role(entry: Entry) -> str:
    if set(entry.axes) <= set("MNK"):
        return _MATRICES
    return _FILTERS if entry.axes[0] in "OKG" else _FEATURES
