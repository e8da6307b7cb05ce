"""The output of `verify`."""

import math
from pathlib import Path

from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import Cell, key_values, section, show, styled_line, table
from layoutopt.report.facts import by_definition
from layoutopt.sample_inputs import sizes_text
from layoutopt.verification import Comparison, Verification


def print_comparison(
    verdict: Verification, original: Path, rewritten: Path, json: JsonRecord, *, is_quiet: bool
) -> None:
    """Print the verdict and one row per output."""
    json.write(
        {
            "status": verdict.status,
            "reason": verdict.reason,
            "outputs_depend_on_inputs": verdict.depends_on_inputs,
            "block_by_definition": verdict.defined_block or None,
            "sizes": [dict(each) for each in verdict.sizes],
            "outputs": [_record(each) for each in verdict.comparisons],
        }
    )
    if json.is_printed or is_quiet:
        return
    if not verdict.comparisons:
        return  # the error message is the whole output
    outputs: list[list[Cell]] = []
    for each in verdict.comparisons:
        mark = ("equal", "green") if each.passed else ("differs", "bold red")
        numbers = (each.error, each.spread.largest, each.tolerance)
        outputs.append([each.name, each.dtype, *(f"{number:.1e}" for number in numbers), mark])
    style = "green" if verdict.status == "passed" else "bold red"
    count = max(len(verdict.sizes), 1) + 1
    rows: list[tuple[str, Cell]] = [("verdict", styled_line((verdict.status, style), f", on {count} random inputs"))]
    if verdict.sizes:
        rows.append(("sizes", "; ".join(sizes_text(dict(each)) for each in verdict.sizes)))
    if verdict.defined_block:
        rows.append(("kernels", (by_definition(verdict.defined_block), "yellow")))
    if not verdict.depends_on_inputs:
        caveat = "the outputs do not depend on the inputs, so the comparison is weak evidence"
        rows.append(("caveat", (caveat, "yellow")))
    show(styled_line((str(original), "bold"), " and ", (str(rewritten), "bold")), key_values(*rows))
    columns = ["output", "=dtype", ">error", ">rounding spread", ">tolerance", "=verdict"]
    section("outputs", "largest error of each output, and how far rounding alone moves it", table(columns, outputs))


def _record(each: Comparison) -> dict[str, object]:
    return {
        "name": each.name,
        "dtype": each.dtype,
        "error": each.error if math.isfinite(each.error) else None,
        "rounding": each.spread.largest,
        "tolerance": each.tolerance,
        "passed": each.passed,
    }
