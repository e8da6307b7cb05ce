"""Warnings that follow from a report: for the command line, and for the logger `layoutopt`."""

from collections.abc import Iterable

from layoutopt.report.schema import NoteReport, Report

LEFT_OUT = "verify"
"""Source of the notes on passes that were left out because the result differed with them."""


def warnings_of(report: Report) -> list[str]:
    """Warnings about the result of `optimize`, besides those about repairs."""
    verification = report.verification
    left_out = [f"{report.model}: {note.where} {note.reason}" for note in report.notes if note.source == LEFT_OUT]
    if verification.status == "not verified":
        return [f"{report.model}: not verified: {verification.reason}", *left_out]
    if verification.outputs_depend_on_inputs is False:
        what = "the outputs do not depend on the inputs, so the verification is weak evidence"
        return [f"{report.model}: {what}", *left_out]
    return left_out


def repairs_of(notes: Iterable[NoteReport]) -> list[tuple[str, str]]:
    """Repairs that the reader made, as (name, repair), from the notes of a report."""
    return [(note.where, note.reason) for note in notes if note.source == "read"]


__all__ = ["LEFT_OUT", "repairs_of", "warnings_of"]
