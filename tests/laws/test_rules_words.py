"""The padding transfer table of a rule agrees with its transfer function on samples, and every rule describes its formats."""

from itertools import islice

import pytest
from test_rules_samples import drafts

from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops import has_padding, is_canonical, rule_of, rules
from layoutopt.ops.base import padded_axes_of
from layoutopt.testing.rules import legal_signatures, lifted

_SAMPLES = 4


@pytest.mark.parametrize("kind", rules())
def test_padding_of_results(kind: str) -> None:
    transfer = rules()[kind].padding
    for state, results in observed(kind, _SAMPLES).items():
        others = results - {transfer[state]}
        assert not others or transfer.text, f"{state} padding becomes {others}, and not {transfer[state]}"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rules())
def test_the_declared_padding_is_seen(kind: str) -> None:
    transfer = rules()[kind].padding
    for state, results in observed(kind, None).items():
        assert not results or transfer[state] in results, (
            f"{state} padding becomes {results}, and never {transfer[state]}"
        )


def observed(kind: str, count: int | None) -> dict[Padding, set[Padding | None]]:
    """The padding states of results if all inputs have one state; None if the rule refuses it."""
    found: dict[Padding, set[Padding | None]] = {state: set() for state in Padding}
    made = (draft.make() for draft in drafts(kind, is_thorough=count is None) if not draft.is_moved)
    for sample in islice((each for each in made if each is not None), count):
        graph = lifted(sample.model)
        (op,) = graph.ops
        if rule_of(op) is not None:
            for signature in legal_signatures(op, is_thorough=False):
                if not is_canonical(signature):
                    _observe(op, signature, found)
    return found


def _observe(op: Op, signature: Signature, found: dict[Padding, set[Padding | None]]) -> None:
    rule = rule_of(op)
    assert rule is not None
    inputs = list(zip(op.inputs, signature.inputs, strict=True))
    padded = [value is not None and not value.is_constant and has_padding(value, storage) for value, storage in inputs]
    results = [has_padding(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    axes = {padded_axes_of(value, storage) for value, storage in (*inputs, (op.outputs[0], signature.outputs[0]))}
    if rule.is_broadcasting and (not all(padded) or len(axes) > 1):
        return
    for state in Padding if any(padded) else [Padding.ZERO] if any(results) else []:
        states = rule.transfer_padding(op, signature, tuple(state if has else Padding.ZERO for has in padded))
        if states is None:
            found[state].add(None)
        elif any(results):
            left = (*states, *(Padding.ANY,) * (len(op.outputs) - len(states)))
            found[state].add(max(each for each, has in zip(left, results, strict=True) if has))
