"""The output of `banks`: a matrix in the rows of shared memory, and the bank conflicts of accesses to it."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from layoutopt.cli.files.json_record import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, key_values, section, show, styled_line, table, text
from layoutopt.systems.cutlass import Operand
from layoutopt.systems.cutlass.banks import BANKS, Access

_MAX_LINES = 16  # of memory that are shown


def print_banks(matrix: Operand, json: JsonRecord) -> None:
    """Print the position of the elements, and the wavefronts of a write and a read."""
    costs = [(access, matrix.conflicts(access)) for access in (matrix.write, matrix.read)]
    json.write(
        {
            "layout": str(matrix.layout),
            "extent": matrix.extent,
            "element_bits": matrix.element_size,
            "accesses": [
                {
                    "name": access.name,
                    "bytes": access.width,
                    "wavefronts": cost.wavefronts,
                    "conflicts": cost.conflicts,
                }
                for access, cost in costs
            ],
            "cell_bytes": matrix.cell,
            "lines": matrix.lines().tolist(),
        }
    )
    if json.is_printed:
        return
    size = f"  {' x '.join(map(str, matrix.extent))} elements of {matrix.element_size} bits"
    show(styled_line((str(matrix.layout), "bold"), (size, "dim")))
    show(key_values(*((access.name, _cost(access, cost.wavefronts, cost.conflicts)) for access, cost in costs)))
    section("banks", "first element of each cell, as strided index, contiguous index", _bank_table(matrix))
    footnote(f"Brackets mark the cells that the first {matrix.read.phase} threads of {matrix.read.name} read together.")


def _cost(access: Access, wavefronts: Sequence[int], conflicts: int) -> Text:
    words = _counted(conflicts, "conflict") if conflicts else "no conflicts"
    how = f"  {access.width} bytes per thread, {_counted(len(wavefronts), 'phase')} in {_counted(sum(wavefronts), 'wavefront')}"
    return styled_line((words, "yellow" if conflicts else "green"), (how, "dim"))


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def _bank_table(matrix: Operand) -> Table:
    lines, read = matrix.lines(), matrix.first_phase(matrix.read)
    per_line, banks = lines.shape[1], BANKS // lines.shape[1]
    rows = table(">line", *(f">{first}…{first + banks - 1}" for first in range(0, BANKS, banks)))
    for number, cells in enumerate(lines[:_MAX_LINES].tolist()):
        first = number * per_line
        rows.add_row(text(number, "dim"), *(_cell(c, s, first + at in read) for at, (c, s) in enumerate(cells)))
    if len(lines) > _MAX_LINES:
        rows.add_row("…", *("" for _ in range(per_line)))
    return rows


def _cell(contiguous: int, strided: int, is_read: bool) -> Text:
    if contiguous < 0:
        return text("·", "dim")
    return text(f"[{strided},{contiguous}]", "cyan") if is_read else text(f"{strided},{contiguous} ")
