"""The producer of certificates: claims about values of the same name or of equal terms, and their proofs."""

from collections.abc import Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import onnx

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.check import (
    VERSION,
    Certificate,
    Claim,
    Context,
    check,
    check_interface,
    prove,
    segment,
)
from layoutopt.certificate.checker.model import Model, of_message, read
from layoutopt.certificate.checker.normal import split_view
from layoutopt.certificate.checker.operators import SegmentError, Translator
from layoutopt.certificate.checker.terms import Term, UnprovableError, difference
from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.errors import ArgumentError, CertificateError
from layoutopt.verification import ObservedValue, verify_models
from layoutopt.version import VERSION as LAYOUTOPT_VERSION

_LARGEST_SEGMENT = 96
_LARGEST_ORIGINAL_SEGMENT = 60

Original: TypeAlias = str | PathLike[str] | bytes | onnx.ModelProto


def certificate_text(original: Original, result: Original, *, allow_tested: bool = False) -> str:
    """The certificate of a result, as JSON, after `certify` has accepted it.

    Args:
        original: the original.
        result: the result.
        allow_tested: whether values without a proof may be compared on random inputs.

    Raises:
        ArgumentError: a model is no file, message or bytes.
        ModelError: it cannot be read.
        CertificateError: there is no certificate that `certify` accepts.
    """
    first, second = _model(original), _model(result)
    check_interface(first, second)
    context = Context(first, second, packed_block(node.name for node in second.nodes) or 1)
    certificate = Certificate(
        layoutopt_version=LAYOUTOPT_VERSION,
        certificate=VERSION,
        original=first.digest,
        result=second.digest,
        block=context.block,
        claims=tuple(_claims(context, allow_tested)),
    )
    verdict = check(certificate, first, second, allow_tested=allow_tested)
    measure(first, second, [claim for claim, _ in verdict.tested.values()])
    return to_json(certificate)


def to_json(certificate: Certificate) -> str:
    """A certificate as JSON, one claim per line."""
    head = certificate.model_dump_json(exclude={"claims", "layoutopt_file"})
    lines = ",\n  ".join(claim.model_dump_json(exclude_defaults=True) for claim in certificate.claims)
    return f'{head[:-1]}, "claims": [\n  {lines}\n]}}\n'


def measure(original: Model, result: Model, claims: list[Claim]) -> list[float]:
    """The largest relative difference of every tested claim on random inputs.

    Raises:
        CertificateError: a difference is larger than that of rounding, or onnxruntime does not run a model.
    """
    if not claims:
        return []
    observed = [ObservedValue(claim.of, claim.value, None) for claim in claims]
    models = (model.message.SerializeToString() for model in (original, result))
    verdict = verify_models(*models, observed=observed)
    errors = {claim.of: [each.error for each in verdict.comparisons if each.name == claim.of] for claim in claims}
    if verdict.status != "passed" or len(errors) < len(claims) or not all(errors.values()):
        raise CertificateError(f"the tested values are not equal: {verdict.reason or 'a value is tested twice'}")
    return [max(errors[claim.of]) for claim in claims]


def _model(given: Original) -> Model:
    if isinstance(given, str | PathLike):
        return read(Path(given))
    if isinstance(given, onnx.ModelProto):
        return of_message(given)
    if isinstance(given, bytes):
        return of_message(onnx.ModelProto.FromString(given))
    raise ArgumentError(f"{type(given).__name__} is not a model", hint="give a path, bytes or a ModelProto")


def _claims(context: Context, allow_tested: bool) -> list[Claim]:
    """Claims that reach every output, in the order of the result's nodes.

    Raises:
        CertificateError: a value has no proof, and none may be tested.
    """
    result, failures, start = context.result, dict[str, str](), 0
    for name in result.inputs:
        context.accept(Claim.identity(name, context.original.types[name][0]))
    inputs = set(context.claims)
    while True:
        _prove_outputs(context, start, failures)
        missing = [name for name in result.outputs if name not in context.claims]
        if not missing:
            return [claim for name, claim in context.claims.items() if name not in inputs]
        claim = _tested(context, missing)
        if not allow_tested:
            reason = failures.get(claim.value, "it is too far from values with a proof")
            hint = "--config allow-tested=true compares it on random inputs"
            raise CertificateError(f"is not proven: {reason}", where=claim.value, hint=hint)
        context.accept(claim)
        start = result.producers[claim.value] + 1


def _prove_outputs(context: Context, start: int, failures: dict[str, str]) -> None:
    """Accept proven claims about the results of nodes from `start` on, up to one that is too far from claimed values."""
    for node in context.result.nodes[start:]:
        for name in filter(None, node.output):
            try:
                if name not in context.claims:
                    context.accept(*_proven(context, name))
            except SegmentError:
                return
            except Exception as fault:  # as in the checker: a model can break any assumption of a rule
                failures[name] = str(fault)


def _tested(context: Context, missing: list[str]) -> Claim:
    """A claim without a proof about the first value in front of outputs that has the name and type of one of the original."""
    known = {claim.of for claim in context.claims.values()}
    for position in sorted(set().union(*(segment(context, name) for name in missing))):
        for name in context.result.nodes[position].output:
            found = context.original.types.get(name)
            if found and name not in known and context.result.types.get(name, found) == found:
                return Claim.identity(name, found[0], tested=True)
    return Claim.identity(missing[0], context.original_leaf(missing[0]).shape, tested=True)


def _proven(context: Context, name: str) -> tuple[Claim, tuple[int | str, ...]]:
    """A proven claim about a value of the result, and the shape of the value of the original.

    Raises:
        UnprovableError: there is none.
    """
    translator = Translator(context.result, context.leaves, context.block, _LARGEST_SEGMENT)
    term = translator.term(name)
    reached = {context.claims[each].of for each in translator.reached}
    starts = {each: context.original_leaf(each) for each in {*reached, *context.original.inputs}}
    source = Translator(context.original, starts, context.block, _LARGEST_ORIGINAL_SEGMENT)
    reason = "no value of the original is like it"
    for candidate in _candidates(context, name, reached):
        try:
            claim = _matching(name, candidate, term, source.term(candidate))
            return claim, prove(context, claim).shape
        except SegmentError:
            break
        except Exception as fault:
            reason = f"{candidate}: {fault}" if candidate in name else reason
    raise UnprovableError(reason)


def _candidates(context: Context, name: str, reached: set[str]) -> Iterator[str]:
    """Values of the original that a value of the result can be; an output is the output of that name.

    Names that layoutopt generates begin with the name of a value of the original. Other candidates are the values that the
    original computes from those in `reached`.
    """
    original = context.original
    if name in context.result.outputs:
        yield name
        return
    prefix = name
    while prefix not in original.producers and "__" in prefix:
        prefix = prefix.rpartition("__")[0]
    if prefix in original.producers:
        yield prefix
    known = {*reached, *original.constants}
    yield from islice(_computed_from(original, known), _LARGEST_ORIGINAL_SEGMENT)


def _computed_from(model: Model, known: set[str]) -> Iterator[str]:
    """The values that a model computes from known ones only, in the order of its nodes."""
    for node in model.nodes:
        if known.issuperset(filter(None, node.input)):
            yield from filter(None, node.output)
            known.update(node.output)


def _matching(name: str, of: str, term: Term, expected: Term) -> Claim:
    """The claim with the map that makes one term of the other.

    Raises:
        UnprovableError: the cores of the terms differ, or there is no map.
    """
    core, axes = split_view(term)
    other, back = split_view(expected)
    if reason := difference(core, other):
        raise UnprovableError(reason)
    inverse = maps.inverse(back, other.shape)
    found = None if inverse is None else maps.compose(axes, inverse)
    if found is None:
        raise UnprovableError("the formats have no map")
    return Claim(value=name, of=of, axes=found)
