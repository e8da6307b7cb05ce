"""What layoutopt knows of every operator: for tables that people read."""

from collections.abc import Iterable
from dataclasses import dataclass

from layoutopt.onnx_io.schema import ONNX_VERSION, changes, operators
from layoutopt.ops import OPS_WITHOUT_RULE, rules
from layoutopt.ops.base import OLDEST_OPSET

UNKNOWN = "it is newer than this layoutopt, or was overlooked"

_INTRODUCTION = (
    f"Every operator of onnx {ONNX_VERSION}, and those of onnxruntime that its optimiser saves. This page is written by",
    "`layoutopt ops --markdown > docs/operators.md`.",
    "",
    "*Opsets* are those at which an operator changed, from 7 on; rules are tested at each of them. Models of older opsets are",
    "left as they are. *Formats* says which formats the operands may have; one that is legal is not always wise, which is for",
    "the target to say. *Padding* is the state of the padding of blocked results, by its state in all operands: zero, finite or",
    "any; kept is zero → zero, finite → finite, any → any.",
)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Attributes:
        name: its type.
        domain: its domain; empty for ai.onnx.
        opsets: those at which it changed and that are looked at; none outside of onnx's own domains.
        family: what cost models call it; empty where there is no rule.
        formats: in words, the formats that its operands may have.
        padding: the padding transfer function, in words.
        reason: why it stays in canonical format, where it does.
    """

    name: str
    domain: str
    opsets: tuple[int, ...]
    family: str = ""
    formats: str = ""
    padding: str = ""
    reason: str = ""

    @property
    def kind(self) -> str:
        """The type with the domain in front, as models that are written down have it."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


def known_operators() -> list[Operator]:
    """Those of ai.onnx first, then the other domains, in alphabetical order."""
    kinds = {f"{domain}::{op_type}" if domain else op_type for domain, op_type in operators()}
    found = [_operator(kind) for kind in {*kinds, *rules(), *OPS_WITHOUT_RULE}]
    return sorted(found, key=lambda each: (each.domain, each.name))


def _operator(kind: str) -> Operator:
    domain, _, name = kind.rpartition("::")
    versions = changes(name, domain)
    if not domain:
        older = [version for version in versions if version <= OLDEST_OPSET]
        versions = [*([OLDEST_OPSET] if older else []), *(each for each in versions if each > OLDEST_OPSET)]
    rule = rules().get(kind)
    if rule is not None:
        return Operator(name, domain, tuple(versions), rule.family, rule.formats, str(rule.padding_of(kind)))
    return Operator(name, domain, tuple(versions), reason=OPS_WITHOUT_RULE.get(kind, UNKNOWN))


def operators_page(found: Iterable[Operator]) -> str:
    """The page in the documentation, in Markdown."""
    every = list(found)
    ruled, left = [each for each in every if each.family], [each for each in every if each.reason]
    lines = [
        "# Operators",
        "",
        *_INTRODUCTION,
        "",
        "| operator | opsets | family | formats | padding |",
        "|---|---|---|---|---|",
        *(f"| {each.kind} | {_opsets(each)} | {each.family} | {each.formats} | {each.padding} |" for each in ruled),
        "",
        "## Operators without a layout rule",
        "",
        "These run in canonical format, for the reason given; so do operators in neither table, which are not of onnx.",
        "",
        "| operator | opsets | because |",
        "|---|---|---|",
        *(f"| {each.kind} | {_opsets(each)} | {each.reason} |" for each in left),
    ]
    return "\n".join(lines) + "\n"


def _opsets(each: Operator) -> str:
    return ", ".join(map(str, each.opsets))
