"""The check of a certificate: every claim is proven from the claims before it, or tested, and every node is justified."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.equality import difference
from layoutopt.certificate.checker.fused_operators import NCHWC
from layoutopt.certificate.checker.model import Model
from layoutopt.certificate.checker.normal import reshaped, view
from layoutopt.certificate.checker.schema import Certificate, Claim
from layoutopt.certificate.checker.terms import Shape, Term, UnprovableError, leaf
from layoutopt.certificate.checker.translate import Translator
from layoutopt.errors import CertificateError

BLOCKS = (8, 16)  # channels per block of onnxruntime's blocked operators
FIRST_OPSET = 7  # before it, operands are broadcast by attributes


@dataclass(frozen=True, slots=True)
class Proof:
    """A proven claim.

    Attributes:
        nodes: the nodes of the result between the claimed values and this one.
        original_nodes: the nodes of the original that compute the same.
        lemmas: the names of the lemmas that the proof uses.
        shape: the shape of the value of the original, which can be better known than onnx infers it.
    """

    nodes: frozenset[int]
    original_nodes: frozenset[int]
    lemmas: tuple[str, ...]
    shape: Shape


@dataclass(slots=True)
class Context:
    """Both models, and the claims that are accepted so far.

    Attributes:
        original: the original.
        result: the result.
        block: channels per block of onnxruntime's blocked operators.
        claims: the accepted claims, by value of the result.
        shapes: proven shapes of values of the original.
    """

    original: Model
    result: Model
    block: int
    claims: dict[str, Claim] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def accept(self, claim: Claim, shape: Shape | None = None) -> None:
        """Let later claims start from this one; `shape` is the proven shape of the value of the original."""
        self.claims[claim.value] = claim
        if shape is not None:
            self.shapes.setdefault(claim.of, shape)

    def original_leaf(self, name: str) -> Term:
        """A value of the original as a leaf."""
        if name not in self.original.types:
            raise UnprovableError(f"onnx infers no shape for {name} of the original")
        shape, dtype = self.original.types[name]
        return leaf(name, self.shapes.get(name, shape), dtype)

    def claimed(self, claim: Claim) -> Term:
        """The value of the result that a claim is about, as a view of a leaf."""
        return claimed_view(claim, self.original_leaf(claim.of))


def claimed_view(claim: Claim, source: Term) -> Term:
    """The elements of `source` in the order that a claim gives them.

    Raises:
        UnprovableError: the map is no bijection of elements.
    """
    back = maps.inverse(claim.axes, source.shape)
    if back is None or maps.inverse(back, maps.shape_of(claim.axes)) is None:
        raise UnprovableError(f"the map of {claim.value} is no bijection on the elements of {claim.of}")
    term = view(source, claim.axes)
    return term if claim.shape is None else reshaped(term, claim.shape)


def prove(context: Context, claim: Claim) -> Proof:
    """The proof of a claim from the accepted ones.

    Raises:
        UnprovableError: there is none; the message gives the first difference.
    """
    leaves = Leaves(context)
    found = Translator(context.result, leaves, context.block)
    term = found.term(claim.value) if claim.value not in context.claims else leaves[claim.value]
    reached = {context.claims[name].of for name in found.reached if name in context.claims}
    starts = {
        name: context.original_leaf(name)
        for name in {*reached, *context.original.inputs}
        if name in context.original.types
    }
    expected = Translator(context.original, starts, context.block)
    source = expected.term(claim.of)
    wanted = claimed_view(claim, source)
    if reason := difference(term, wanted):
        raise UnprovableError(reason)
    lemmas = term.lemmas | wanted.lemmas
    return Proof(frozenset(found.nodes), frozenset(expected.nodes), tuple(sorted(lemmas)), source.shape)


class Leaves(Mapping[str, Term]):
    """The claimed values of the result, as terms, made when they are read."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getitem__(self, name: str) -> Term:
        return self._context.claimed(self._context.claims[name])

    def __contains__(self, name: object) -> bool:
        return name in self._context.claims

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._context.claims)

    def __len__(self) -> int:
        return len(self._context.claims)


@dataclass(slots=True)
class Verdict:
    """The outcome of an accepted certificate.

    Attributes:
        proofs: the proofs, by value of the result.
        tested: the largest relative difference of each value that is only tested, with the nodes between it and claimed values.
        nodes: the number of nodes of the result.
        original_nodes: the number of nodes of the original.
    """

    proofs: dict[str, Proof] = field(default_factory=dict)
    tested: dict[str, tuple[float, frozenset[int]]] = field(default_factory=dict)
    nodes: int = 0
    original_nodes: int = 0

    @property
    def lemmas(self) -> dict[str, int]:
        """By lemma, the number of claims that use it."""
        counts: dict[str, int] = {}
        for proof in self.proofs.values():
            for name in proof.lemmas:
                counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def tested_nodes(self) -> frozenset[int]:
        """The nodes of the result that are only tested."""
        return frozenset[int]().union(*(nodes for _, nodes in self.tested.values()))

    @property
    def proven_nodes(self) -> frozenset[int]:
        """The nodes of the result that are proven and in no tested part."""
        return frozenset[int]().union(*(proof.nodes for proof in self.proofs.values())) - self.tested_nodes


def check(certificate: Certificate, original: Model, result: Model, *, run_tests: bool = True) -> Verdict:
    """Check a certificate of two models.

    Raises:
        CertificateError: it is refused; the message gives the claim and the reason.
    """
    _check_hashes(certificate, original, result)
    _check_interface(original, result)
    if certificate.block not in BLOCKS and any(node.domain == NCHWC for node in result.nodes):
        raise CertificateError(f"`block` is {certificate.block}; onnxruntime has blocks of {BLOCKS[0]} or {BLOCKS[1]}")
    context = Context(original, result, certificate.block)
    for name in result.inputs:
        context.accept(Claim.identity(name, original.types[name][0]))
    verdict = Verdict(nodes=len(result.nodes), original_nodes=len(original.nodes))
    for claim in certificate.claims:
        if claim.value in context.claims or claim.value not in result.producers:
            raise CertificateError("is claimed twice, or no node computes it", where=claim.value)
        _check_claim(context, claim, verdict)
        proof = verdict.proofs.get(claim.value)
        context.accept(claim, proof.shape if proof is not None else None)
    _check_outputs(context)
    _check_coverage(context, verdict)
    if verdict.tested and run_tests:
        from layoutopt.certificate.checker.testing import measure

        chosen = [claim for claim in certificate.claims if claim.value in verdict.tested]
        for claim, error in zip(chosen, measure(context, chosen), strict=True):
            verdict.tested[claim.value] = error, verdict.tested[claim.value][1]
    return verdict


def _check_claim(context: Context, claim: Claim, verdict: Verdict) -> None:
    try:
        if claim.is_tested:
            if claim.lemmas:
                raise CertificateError("a tested claim has no lemmas", where=claim.value)
            context.claimed(claim)
            verdict.tested[claim.value] = 0.0, segment(context, claim.value)
            return
        proof = prove(context, claim)
    except CertificateError:
        raise
    except Exception as fault:  # an invalid model or claim can break any assumption of a rule; it is refused then
        reason = str(fault) if isinstance(fault, UnprovableError) else f"{type(fault).__name__} in a rule ({fault})"
        raise CertificateError(f"is not proven to be {claim.of}: {reason}", where=claim.value) from fault
    if proof.lemmas != claim.lemmas:
        raise CertificateError(
            f"is proven by {_list(proof.lemmas)}, the certificate has {_list(claim.lemmas)}", where=claim.value
        )
    verdict.proofs[claim.value] = proof


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "no lemma"


def segment(context: Context, name: str) -> frozenset[int]:
    """The nodes of the result from claimed values to this one."""
    found: set[int] = set()
    pending = [name]
    while pending:
        position = context.result.producers.get(pending.pop())
        if position is not None and position not in found:
            found.add(position)
            pending += [each for each in context.result.nodes[position].input if each not in context.claims]
    return frozenset(found)


def _check_hashes(certificate: Certificate, original: Model, result: Model) -> None:
    for name, digest, model in (("original", certificate.original, original), ("result", certificate.result, result)):
        if digest != model.digest:
            raise CertificateError(f"the {name} is not the file that the certificate is about: its hash differs")
    if original.opsets.get("") != result.opsets.get(""):
        raise CertificateError("the two models have different opsets")
    if original.opsets.get("", 1) < FIRST_OPSET:
        raise CertificateError(f"models of opsets before {FIRST_OPSET} have no proofs")


def _check_interface(original: Model, result: Model) -> None:
    def interface(model: Model) -> list[tuple[str, bytes]]:
        values = [each for each in model.message.graph.input if each.name not in model.constants]
        return [
            (each.name, each.type.SerializeToString(deterministic=True))
            for each in (*values, *model.message.graph.output)
        ]

    first, second = interface(original), interface(result)
    for (name, _), (other, _) in zip(first, second, strict=False):
        if name != other:
            raise CertificateError(
                "inputs and outputs have other names or another order than in the original", where=other
            )
    if len(first) != len(second) or original.outputs != result.outputs:
        raise CertificateError("the models have different inputs or outputs")
    for name in result.inputs:
        if original.types.get(name) is None or original.types[name] != result.types.get(name):
            raise CertificateError("has another type than in the original", where=name)


def _check_outputs(context: Context) -> None:
    for name in context.result.outputs:
        claim = context.claims.get(name)
        if (
            claim is None
            or claim.of != name
            or claim.shape is not None
            or claim.axes != maps.identity(context.original_leaf(name).shape)
        ):
            raise CertificateError("is not claimed to be the output of that name", where=name)


def _check_coverage(context: Context, verdict: Verdict) -> None:
    missing = set(range(len(context.result.nodes))) - verdict.proven_nodes - verdict.tested_nodes
    if missing:
        node = context.result.nodes[min(missing)]
        raise CertificateError(
            f"{node.op_type} is justified by no claim", where=node.name or next(iter(node.output), "")
        )
