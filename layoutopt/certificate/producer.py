"""The producer of certificates: claims that it finds by running both models, and whose proofs it tries."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
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
from layoutopt.certificate.checker.terms import Array, Shape, Term, UnprovableError, difference
from layoutopt.certificate.testing import measure, run, sample_inputs
from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.errors import ArgumentError, CertificateError
from layoutopt.runtime.definitions import define
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.version import VERSION as LAYOUTOPT_VERSION

_TOLERANCE = 2e-3
_LARGEST_PERMUTED_RANK = 6
_LARGEST_SEGMENT = 96
_LARGEST_ORIGINAL_SEGMENT = 60

Statistics: TypeAlias = tuple[int, Array]


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
    block = packed_block(node.name for node in second.nodes) or 1
    certificate = produce(first, second, block, allow_tested=allow_tested)
    verdict = check(certificate, first, second, allow_tested=allow_tested)
    measure(first, second, [claim for claim, _ in verdict.tested.values()])
    return to_json(certificate)


def to_json(certificate: Certificate) -> str:
    """A certificate as JSON, one claim per line."""
    head = {
        "layoutopt_version": LAYOUTOPT_VERSION,
        "certificate": VERSION,
        "original": certificate.original,
        "result": certificate.result,
        "block": certificate.block,
    }
    lines = ",\n  ".join(json.dumps(_record(claim)) for claim in certificate.claims)
    return json.dumps(head)[:-1] + ', "claims": [\n  ' + lines + "\n]}\n"


def _record(claim: Claim) -> dict[str, Any]:
    proof = {"tested": True} if claim.is_tested else {"lemmas": claim.lemmas}
    return {"value": claim.value, "of": claim.of, "axes": claim.axes, **proof}


def _model(given: Original) -> Model:
    if isinstance(given, str | PathLike):
        return read(Path(given))
    if isinstance(given, onnx.ModelProto):
        return of_message(given)
    if isinstance(given, bytes):
        return of_message(onnx.ModelProto.FromString(given))
    raise ArgumentError(f"{type(given).__name__} is not a model", hint="give a path, bytes or a ModelProto")


def produce(original: Model, result: Model, block: int, *, allow_tested: bool = False) -> Certificate:
    """A certificate of two models.

    Raises:
        CertificateError: a value has no proof, and none may be tested.
    """
    check_interface(original, result)
    search = _Search(original, result, block, allow_tested)
    return Certificate(original.digest, result.digest, block, tuple(search.claims()))


class _Search:
    """The search for claims, in the order of the result's nodes."""

    def __init__(self, original: Model, result: Model, block: int, allow_tested: bool) -> None:
        self._original, self._result, self._block, self._allow_tested = original, result, block, allow_tested
        (feeds,) = sample_inputs(original, 1)
        self._wanted = run(original, feeds, [name for name in original.producers if name in original.types])
        self._found = run(_runnable(result, block), feeds, list(result.producers))
        self._order = list(original.producers)
        self._statistics = {name: _statistics(self._wanted[name]) for name in self._order if name in self._wanted}
        self._failures: dict[str, str] = {}

    def claims(self) -> list[Claim]:
        """Claims that reach every output."""
        context = Context(self._original, self._result, self._block)
        for name in self._result.inputs:
            context.accept(Claim.identity(name, self._original.types[name][0]))
        inputs = set(context.claims)
        nodes = list(self._result.nodes)
        position = 0
        while position < len(nodes):
            back = self._prove_node(context, nodes[position])
            position = position + 1 if back is None else back
            if position == len(nodes) and (
                missing := [name for name in self._result.outputs if name not in context.claims]
            ):
                position = self._test(context, missing) or position
        return self._needed(context, inputs)

    def _prove_node(self, context: Context, node: onnx.NodeProto) -> int | None:
        """Add claims for the outputs of a node; the position of an earlier node if claims are tried again from there."""
        for name in filter(None, node.output):
            if name in context.claims:
                continue
            try:
                if (found := self._proven(context, name)) is not None:
                    context.accept(*found)
            except SegmentError:
                if (back := self._test(context, [name])) is not None:
                    return back
        return None

    def _test(self, context: Context, missing: list[str]) -> int | None:
        """Add a tested claim where proofs stop before the given values; the position of the node behind it."""
        claim = self._first_tested(context, missing)
        if not self._allow_tested:
            name = missing[0] if claim is None else claim.value
            reason = self._failures.get(name, "no value of the original is like it")
            raise CertificateError(
                f"is not proven: {reason}", where=name, hint="--config allow-tested=true compares it on random inputs"
            )
        if claim is None:
            return None
        context.accept(claim)
        return self._result.producers[claim.value] + 1

    def _candidates(self, name: str) -> Iterator[str]:
        """Values of the original with the same elements in any order; an output matches its own name only."""
        own = _statistics(self._found[name])
        if name in self._result.outputs:
            yield name
            return
        order = sorted(self._order, key=lambda each: each != name)
        yield from (each for each in order if each in self._statistics and _agree(own, self._statistics[each]))

    def _proven(self, context: Context, name: str) -> tuple[Claim, Shape] | None:
        translator = Translator(self._result, context.leaves, self._block, _LARGEST_SEGMENT)
        try:
            term = translator.term(name)
        except SegmentError:
            raise
        except Exception as fault:  # as in the checker: a model can break any assumption of a rule
            self._failures[name] = str(fault)
            return None
        reached = {context.claims[each].of for each in translator.reached}
        starts = {each: context.original_leaf(each) for each in {*reached, *self._original.inputs}}
        source = Translator(self._original, starts, self._block, _LARGEST_ORIGINAL_SEGMENT)
        for candidate in self._candidates(name):
            try:
                claim = _matching(name, candidate, term, source.term(candidate))
                proof = prove(context, claim)
                return replace(claim, lemmas=proof.lemmas), proof.shape
            except Exception as fault:
                self._failures[name] = f"{candidate}: {fault}"
        return None

    def _first_tested(self, context: Context, missing: list[str]) -> Claim | None:
        """The first value before outputs without a claim that has a value of the original with equal numbers."""
        positions = sorted(set().union(*(segment(context, name) for name in missing)))
        for position in positions:
            for name in filter(None, self._result.nodes[position].output):
                for candidate in () if name in context.claims else self._candidates(name):
                    if (axes := self._numeric_map(name, candidate)) is not None:
                        return Claim(name, candidate, axes, is_tested=True)
        return None

    def _numeric_map(self, name: str, candidate: str) -> maps.Axes | None:
        """The map between two values, by their numbers."""
        a, b = self._wanted[candidate], self._found[name]
        shape, _ = self._original.types[candidate]
        if any(not isinstance(extent, int) for extent in shape):
            return maps.identity(shape) if a.shape == b.shape and _near(a, b) else None
        own = maps.identity(shape)
        rank = sum(extent != 1 for extent in shape)
        orders = permutations(own) if len(shape) <= _LARGEST_PERMUTED_RANK and rank > 1 else iter([own])
        for order in orders:
            for axes in self._layouts(tuple(order), name, b.shape):
                if _near(maps.rearranged(a, axes, maps.shape_of(axes)).reshape(b.shape), b):
                    return axes
        return None

    def _layouts(self, order: maps.Axes, name: str, shape: Shape) -> Iterator[maps.Axes]:
        is_in_blocks = name in self._result.blocked
        if is_in_blocks and maps.shape_of(order) == shape and isinstance(shape[1], int):
            shape = (shape[0], shape[1] // self._block, self._block, *shape[2:])
        if (axes := maps.reshape(order, shape)) is not None:
            yield maps.canonical([axes[k] for k in (0, 1, 3, 4, 2)]) if is_in_blocks and len(axes) == 5 else axes

    def _needed(self, context: Context, inputs: set[str]) -> list[Claim]:
        """The claims that outputs depend on, in order."""
        needed: set[str] = set()
        pending = list(self._result.outputs)
        while pending:
            name = pending.pop()
            if name in needed or name in inputs:
                continue
            needed.add(name)
            others = Context(
                self._original, self._result, self._block, {k: v for k, v in context.claims.items() if k != name}
            )
            for position in segment(others, name):
                pending += [each for each in self._result.nodes[position].input if each in others.claims]
        return [claim for name, claim in context.claims.items() if name in needed]


def _runnable(model: Model, block: int) -> Model:
    """The model, with blocked operators replaced by their definitions if this machine has other blocks."""
    if block == 1 or block == blocked_channels():
        return model
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    define(message, block)
    return replace(model, message=message)


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
    return Claim(name, of, found)


def _statistics(array: Array) -> Statistics:
    """The number of elements, and sums that do not depend on their order."""
    if array.dtype.kind not in "fiub" or not array.size:
        return array.size, np.zeros(0)
    with np.errstate(all="ignore"):
        flat = array.astype(np.float64).reshape(-1)
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return array.size, np.zeros(0)
        return array.size, np.asarray(
            [flat.mean(), np.abs(flat).mean(), np.sqrt((flat**2).mean()), flat.min(), flat.max()]
        )


def _agree(first: Statistics, second: Statistics) -> bool:
    (count, a), (other, b) = first, second
    if count != other or a.shape != b.shape:
        return False
    scale = max(float(np.abs(a).max()), float(np.abs(b).max())) if a.size else 0.0
    return bool(np.all(np.abs(a - b) <= _TOLERANCE * scale + 1e-30))


def _near(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    scale = float(np.abs(np.where(np.isfinite(a), a, 0)).max()) if a.size else 0.0
    return bool(np.allclose(a, b, rtol=0, atol=_TOLERANCE * scale, equal_nan=True))
