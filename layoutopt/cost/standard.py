"""Prices of a target in a runtime that reads standard ONNX: an operator has its operands as ONNX declares them."""

from collections.abc import Sequence

from layoutopt.cost.model import INSIDE_AN_OP, CostModel, CostModelWrapper, Emulating
from layoutopt.cost.several import Several
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats, View, canonical_signature, is_canonical, rule_of


class StandardOperators(CostModelWrapper, Emulating):
    """A cost model without the kernels for formats that standard ONNX cannot express.

    An op that is one operator on the physical arrays costs what it costs with canonical operands: the runtime chooses the
    formats inside of its kernels. Any other op is written as the canonical operator between Transposes, and priced as that.
    """

    @property
    def dialect(self) -> str:
        """The dialect of standard operators."""
        return "standard"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """None: canonical formats, and those of neighbours, are candidates anyway."""
        del op
        return ()

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the canonical op and of the conversions within it."""
        if isinstance(rule_of(op), View):
            return self._model.kernel_seconds(op, signature)
        inner = self._model.kernel_seconds(op, canonical_signature(op))
        return inner + INSIDE_AN_OP * sum(self._conversions(op, signature))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of the Transpose and the Reshapes that a conversion is written as."""
        return self._model.conversion_seconds(value, src, dst)

    def emulation_conversions(self, op: Op, signature: Signature) -> int:
        """The number of operands that are converted within the op, without constants."""
        return 0 if isinstance(rule_of(op), View) else len(self._conversions(op, signature))

    def _conversions(self, op: Op, signature: Signature) -> list[float]:
        """Seconds of each conversion between an operand's format and the canonical one that moves bytes."""
        rule = rule_of(op)
        if is_canonical(signature) or (rule is not None and rule.is_layout_agnostic(op, signature)):
            return []
        operands = ((op.operand(slot), signature[slot]) for slot in op.slots())
        seconds = [
            self.conversion_seconds(value, storage, Storage(Format.canonical(storage.format.rank)))
            for value, storage in operands
            if value is not None and storage is not None and not value.is_constant
        ]
        return [each for each in seconds if each]


def standard_operators(model: CostModel) -> CostModel:
    """A cost model, or several, restricted to standard operators."""
    if isinstance(model, Several):
        return Several([StandardOperators(each) for each in model.models])
    return StandardOperators(model)
