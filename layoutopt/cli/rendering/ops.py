"""The output of `ops`."""

from dataclasses import asdict

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import section, show, table, text
from layoutopt.report.operators import Operator, known_operators


def print_operators(name: str | None, family: str | None, *, json: JsonRecord) -> None:
    """Print the operators whose name contains `name` and whose family is `family`; without these, print all.

    Raises:
        UsageError: there is no such operator or family.
    """
    chosen = _chosen(known_operators(), name, family)
    json.write({"operators": [asdict(each) for each in chosen]})
    if json.is_printed:
        return
    with_rule, without_rule = [each for each in chosen if each.family], [each for each in chosen if each.reason]
    if with_rule:
        rows = table("=operator", "=opsets", "=family", "formats", "padding")
        for each in with_rule:
            opsets = text(" ".join(map(str, each.opsets)), "dim")
            words = text(each.formats), text(each.padding, "dim")
            rows.add_row(text(each.kind, "bold"), opsets, text(each.family), *words)
        show(rows)
    if without_rule:
        rows = table("=operator", "reason")
        for each in without_rule:
            rows.add_row(text(each.kind, "bold"), text(each.reason, "dim"))
        section("operators without a layout rule", "their operands keep the canonical format", rows)


def _chosen(operators: list[Operator], name: str | None, family: str | None) -> list[Operator]:
    query = (name or "").casefold().replace("::", ".")
    exact = [each for each in operators if query in (each.kind.casefold(), each.name.casefold())]
    found = exact or [each for each in operators if query in each.kind.casefold()]
    if not found:
        raise UsageError("no such operator", where=str(name), hint="`layoutopt list ops` lists them")
    if family is None:
        return found
    if family not in {each.family for each in operators} - {""}:
        known = ", ".join(sorted({each.family for each in operators} - {""}))
        raise UsageError("no such family", where=f"--family {family}", hint=f"there are {known}")
    return [each for each in found if each.family == family]
