"""Comparison of a portable model in all the ways in which machines run it.

The branches have been verified by themselves. A portable model is then run as it is, and edited so that this machine runs it as
another one does:

    other blocks    the branches change places
    no blocks       the blocked operators and their functions are renamed, so that the functions are used
    by definition   the native branch, where this machine has other blocks than it needs
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from layoutopt.onnx_io.reader.lossless import nodes
from layoutopt.runtime.definitions import BLOCKED, define
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.portable import portable_block
from layoutopt.verification.request import Request
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.verdict import Verification
from layoutopt.verification.whole_model import verify_models

_OTHER_BRANCH = {"then_branch": "else_branch", "else_branch": "then_branch"}


@dataclass(frozen=True, slots=True)
class PortableModel:
    """A portable model and what its branches are compared with.

    Attributes:
        model: the model.
        native: the reference for the native branch.
        standard: the reference for the standard branch.
        request: the conditions of the comparisons.
    """

    model: Runnable
    native: Runnable
    standard: Runnable
    request: Request

    def verify(self) -> Verification:
        """The first comparison that does not pass, with the way of running it in the reason; "passed" if all do."""
        verdict = Verification("passed")
        for name, edited, is_native in _ways(self.model):
            reference = self.native if is_native else self.standard
            verdict = verify_models(reference, edited, request=self.request, only_optimised=True)
            if verdict.status != "passed":
                return Verification(verdict.status, f"as a portable model {name}: {verdict.reason}")
        return verdict


def _ways(model: Runnable) -> Iterator[tuple[str, Runnable, bool]]:
    """The ways to run a portable model: the name, the edited model, and whether its native branch runs."""
    block = portable_block(node.name for node in model.message().graph.node)
    assert block is not None, "the model is not portable"
    fits = block == blocked_channels()
    yield "on this machine", model, fits
    if fits:
        yield "where blocks have another size", model.edited(_swapped(model.message())), False
    else:
        message = model.message()
        define(message, BLOCKED, block)
        yield f"where blocks have {block} channels", model.edited(message), True
    yield "where there are no blocks", model.edited(without_native_schemas(model.message())), False


def _swapped(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message, whose If takes the other branch."""
    for attr in message.graph.node[-1].attribute:
        attr.name = _OTHER_BRANCH[attr.name]
    return message


def without_native_schemas(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message as a runtime without blocked operators reads it: it uses the functions of these names in the model."""
    for part in (*nodes(message), *message.functions, *message.opset_import):
        if part.domain == BLOCKED_DOMAIN:
            part.domain = BLOCKED.defined_domain
    return message


__all__ = ["PortableModel", "without_native_schemas"]
