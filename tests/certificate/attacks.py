"""Certificates that an attacker makes of a wrong result.

Their claims are those that the checker itself would accept, with the lemmas that it would use.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from parsed_models import parsed

from layoutopt.certificate.checker.check import Certificate, Claim, Context, Verdict, check, prove
from layoutopt.certificate.checker.model import of_message
from layoutopt.certificate.testing import measure
from layoutopt.errors import LayoutoptError

HEAD = '<ir_version: 8, opset_import: ["" : {}, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>'
RANDOM = np.random.default_rng(0)


def model(inputs: str, outputs: str, nodes: str, opset: int = 17, **arrays: Any) -> onnx.ModelProto:
    """A model with these initializers; lists of numbers are int64."""
    return parsed(f"{HEAD.format(opset)} graph ({inputs}) => ({outputs}) {{ {nodes} }}", **arrays)


def floats(*numbers: float) -> np.ndarray[Any, Any]:
    return np.asarray(numbers, np.float32)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


def accepted(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> Verdict:
    """The verdict on the claims, by default that every output is that of the original, with the lemmas of their proofs."""
    first, second = of_message(original), of_message(result)
    context = Context(first, second, block)
    for name in second.inputs:
        context.accept(Claim.identity(name, first.types[name][0]))
    found = []
    for claim in claims or [Claim.identity(name, first.types.get(name, ((), 1))[0]) for name in second.outputs]:
        with suppress(Exception):  # the checker is to say so
            claim = claim if claim.is_tested else replace(claim, lemmas=prove(context, claim).lemmas)
        with suppress(Exception):
            context.accept(claim)
        found.append(claim)
    certificate = Certificate(first.digest, second.digest, block, tuple(found))
    verdict = check(certificate, first, second, allow_tested=True)
    measure(first, second, [claim for claim, _ in verdict.tested.values()])
    return verdict


def assert_refused(
    original: onnx.ModelProto, result: onnx.ModelProto, claims: Sequence[Claim] = (), block: int = 8
) -> None:
    """Assert that the certificate is refused in one line."""
    with pytest.raises(LayoutoptError) as caught:
        accepted(original, result, claims, block)
    assert "\n" not in str(caught.value)
