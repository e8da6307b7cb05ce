"""The table of operators: layout rule, formats and padding of each, or the reason why it has no rule."""

from layoutopt.onnx_io.schema import change_opsets, operators
from layoutopt.ops import OPS_WITHOUT_RULE, rules
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.record import Record

UNKNOWN = "it is newer than this layoutopt, or was overlooked"


class Operator(Record):
    """One operator.

    Attributes:
        name: the op type.
        domain: the domain; empty for ai.onnx.
        opsets: the opset versions that changed it, from 7 on; empty for domains other than those of onnx.
        family: the family of its layout rule, as cost models name it; empty without a rule.
        formats: the legal formats of its operands, in words.
        padding: the padding state of its outputs, in words.
        reason: the reason why it has no layout rule; empty with a rule.
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
        """The op type, with the domain as a prefix if there is one."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


def known_operators() -> list[Operator]:
    """All operators: ai.onnx first, then the other domains, in alphabetical order."""
    kinds = {f"{domain}::{op_type}" if domain else op_type for domain, op_type in operators()}
    found = [_operator(kind) for kind in {*kinds, *rules(), *OPS_WITHOUT_RULE}]
    return sorted(found, key=lambda each: (each.domain, each.name))


def _operator(kind: str) -> Operator:
    domain, _, name = kind.rpartition("::")
    changes = change_opsets(name, domain)
    versions = tuple(changes if domain else sorted({max(each, OLDEST_OPSET) for each in changes}))
    rule = rules().get(kind)
    if rule is not None:
        return Operator(name, domain, versions, rule.family, rule.formats, str(rule.padding))
    return Operator(name, domain, versions, reason=OPS_WITHOUT_RULE.get(kind, UNKNOWN))
