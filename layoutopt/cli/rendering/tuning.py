"""The variants that `optimize --tune` tried: a row of the summary, a table of the fastest ones, and one of learnt prices."""

from rich.text import Text

from layoutopt.cli.rendering.terminal import footnote, section, styled_line, table, text
from layoutopt.report.schema import TuningReport, VariantReport

_MOST = 8  # rows
_MOST_PRICES = 5
_SMALLEST_EXTRA = 5e-4  # that is printed as 0.1 %

_STOPPED = {
    "time": "",
    "no more variants": "; there are no more",
    "interrupted": "; interrupted",
}


def tuning_lines(found: TuningReport | None) -> list[tuple[str, Text]]:
    """The row about tuning; empty if it was not requested."""
    if found is None:
        return []
    if found.reason:
        return [("tuned", styled_line(("not possible: ", "yellow"), found.reason))]
    measured = sum(each.gain is not None for each in found.variants)
    aside = (f"  {len(found.variants)} variants in {found.spent:.0f} s, {measured} measured", "dim")
    end = (_STOPPED.get(found.stopped or "", ""), "dim")
    over = styled_line()
    if found.over_first is not None and found.low is not None and found.high is not None:
        gain = (f"  {found.over_first:.2f}x", "bold green" if found.chosen else "")
        over = styled_line(gain, f" over the first plan, {found.low:.2f} to {found.high:.2f}")
    name = (found.chosen, "bold")
    if not found.chosen:
        name = ("no variant is faster" if found.over_first is None else "no variant is confirmed to be faster", "")
    return [("tuned", styled_line(name, over, aside, end))]


def print_variants(found: TuningReport | None) -> None:
    """Print the fastest of the variants that were measured; nothing if there are none."""
    if found is None:
        return
    measured = sorted((each for each in found.variants if each.gain is not None), key=_speed, reverse=True)
    if not measured:
        return
    rows = table(">original", ">first plan", "", "variant")
    for each in measured[:_MOST]:
        style = "bold green" if each.outcome == "chosen" else ""
        mark = each.outcome if each.outcome != "not faster" else ""
        rows.add_row(_ratio(each.speed_up), _ratio(each.over_first), text(mark, style), _name(each, style))
    section("Variants", "speed-up over the original and over the first plan", rows)
    if len(measured) > _MOST:
        footnote(f"  and {len(measured) - _MOST} more that are slower; --report FILE lists all")


def print_learnt_prices(found: TuningReport | None) -> None:
    """Print the prices with the largest corrections; nothing if nothing was learnt."""
    if found is None or not found.learnt:
        return
    rows = table(">factor", "op or conversion", "formats")
    for each in found.learnt[:_MOST_PRICES]:
        name = each.name if each.kind == "kernel" else f"conversion of {each.name}"
        rows.add_row(text(f"{each.factor:.2f}"), text(name), text(each.formats))
    runs = f"{found.runs_learnt_from} run{'s' if found.runs_learnt_from > 1 else ''}"
    section("Learnt prices", f"factors of estimates that explain {runs} of the whole model", rows)
    if len(found.learnt) > _MOST_PRICES:
        footnote(f"  and {len(found.learnt) - _MOST_PRICES} more; --report FILE lists up to 20")


def _name(variant: VariantReport, style: str) -> Text:
    """The name of a variant, with the estimated extra time of its plan over the first one, if that is not about 0."""
    extra = variant.estimated_extra or 0.0
    aside = f"  {extra:+.1%} estimated" if abs(extra) >= _SMALLEST_EXTRA else ""
    return styled_line((variant.name, style), (aside, "dim"))


def _speed(variant: VariantReport) -> float:
    return variant.speed_up or 0.0


def _ratio(value: float | None) -> Text:
    return text("" if value is None else f"{value:.3f}x")
