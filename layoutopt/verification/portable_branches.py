"""Verification of a portable model for every kind of machine.

The branches are verified one by one before. The portable model then runs unchanged, and in variants that make this machine run
it as another kind of machine does:

    other blocks    the branches are exchanged
    no blocks       the blocked operators and their functions are renamed, so that the functions are used
    by definition   the native branch with definitions of its operators, if this machine has blocks of another size
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from layoutopt.onnx_io.messages import nodes
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
    """A portable model and the references of its branches.

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
        """The first verdict that is not "passed", with the variant in its reason; "passed" if all variants pass."""
        verdict = Verification("passed")
        for name, edited, is_native in _variants(self.model):
            reference = self.native if is_native else self.standard
            verdict = verify_models(reference, edited, request=self.request, only_optimised=True)
            if verdict.status != "passed":
                return Verification(verdict.status, f"as a portable model {name}: {verdict.reason}")
        return verdict


def _variants(model: Runnable) -> Iterator[tuple[str, Runnable, bool]]:
    """The variants of a portable model: the kind of machine, the edited model, and whether its native branch runs."""
    block = portable_block(node.name for node in model.message().graph.node)
    assert block is not None, "the model is not portable"
    has_native_blocks = block == blocked_channels()
    yield "on this machine", model, has_native_blocks
    if has_native_blocks:
        yield "where blocks have another size", model.edited(_with_exchanged_branches(model.message())), False
    else:
        message = model.message()
        define(message, BLOCKED, block)
        yield f"where blocks have {block} channels", model.edited(message), True
    yield "where there are no blocks", model.edited(without_native_schemas(model.message())), False


def _with_exchanged_branches(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message with the branches of its If exchanged, in place."""
    for attr in message.graph.node[-1].attribute:
        attr.name = _OTHER_BRANCH[attr.name]
    return message


def without_native_schemas(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message with blocked operators renamed, in place, so that onnxruntime uses the functions of these names in it."""
    for part in (*nodes(message), *message.functions, *message.opset_import):
        if part.domain == BLOCKED_DOMAIN:
            part.domain = BLOCKED.definition_domain
    return message


__all__ = ["PortableModel", "without_native_schemas"]
