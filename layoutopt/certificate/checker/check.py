"""The check of a certificate: its JSON form, the proof of each claim, and what all claims together must cover."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.model import NCHWC, Model
from layoutopt.certificate.checker.normal import USED, view
from layoutopt.certificate.checker.operators import Translator
from layoutopt.certificate.checker.terms import Shape, Term, UnprovableError, difference, leaf
from layoutopt.errors import CertificateError

VERSION: Literal[2] = 2


class Claim(BaseModel):
    """A value of the result is a value of the original, with its elements in another order.

    Attributes:
        value: the name in the result.
        of: the name in the original.
        axes: for every axis of the value the digits of coordinates of the original that it consists of.
        tested: whether the values are only compared on random inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    value: str
    of: str
    axes: tuple[tuple[tuple[NonNegativeInt, PositiveInt, PositiveInt | str], ...], ...]
    tested: bool = False

    @classmethod
    def identity(cls, name: str, shape: Shape, *, tested: bool = False) -> "Claim":
        """The value of that name is the value of that name."""
        return cls(value=name, of=name, axes=maps.identity(shape), tested=tested)


class Certificate(BaseModel):
    """A certificate.

    Attributes:
        layoutopt_version: the version that wrote it.
        certificate: the version of this format.
        original: the SHA-256 of the original.
        result: the SHA-256 of the result.
        block: channels per block of onnxruntime's blocked operators, for which the claims hold.
        claims: in the order in which they are proven.
        layoutopt_file: the mark of a file that layoutopt wrote.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    layoutopt_version: str
    certificate: Literal[2]
    original: str
    result: str
    block: PositiveInt
    claims: tuple[Claim, ...]
    layoutopt_file: Any = None


def parse(text: str, where: str = "certificate") -> Certificate:
    """The certificate that a JSON text contains.

    Raises:
        CertificateError: the text has another form.
    """
    try:
        return Certificate.model_validate_json(text)
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the text"
        raise CertificateError(
            f"is not a certificate that layoutopt reads: {place}: {first['msg']}", where=where
        ) from fault


BLOCKS = (8, 16)  # channels per block of onnxruntime's blocked operators


@dataclass(frozen=True, slots=True)
class Proof:
    """A proven claim.

    Attributes:
        nodes: the nodes of the result between the claimed values and this one.
        lemmas: the names of the lemmas that the proof uses.
        shape: the shape of the value of the original, which can be better known than onnx infers it.
    """

    nodes: frozenset[int]
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
        leaves: their values as terms.
        shapes: proven shapes of values of the original.
    """

    original: Model
    result: Model
    block: int
    claims: dict[str, Claim] = field(default_factory=dict)
    leaves: dict[str, Term] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def accept(self, claim: Claim, shape: Shape | None = None) -> None:
        """Let later claims start from this one; `shape` is the proven shape of the value of the original."""
        if shape is not None:
            self.shapes.setdefault(claim.of, shape)
        self.claims[claim.value] = claim
        self.leaves[claim.value] = claimed_view(claim, self.original_leaf(claim.of))

    def original_leaf(self, name: str) -> Term:
        """A value of the original as a leaf."""
        if name not in self.original.types:
            raise UnprovableError(f"onnx infers no shape for {name} of the original")
        shape, dtype = self.original.types[name]
        position = self.original.producers.get(name)
        is_sum = position is not None and self.original.nodes[position].op_type in ("Conv", "Gemm", "MatMul")
        return leaf(name, self.shapes.get(name, shape), dtype, is_sum)


def claimed_view(claim: Claim, source: Term) -> Term:
    """The elements of `source` in the order that a claim gives them.

    Raises:
        UnprovableError: the map is no bijection of elements.
    """
    back = maps.inverse(claim.axes, source.shape)
    if (
        claim.axes != maps.canonical(claim.axes)
        or back is None
        or maps.inverse(back, maps.shape_of(claim.axes)) is None
    ):
        raise UnprovableError(f"the map of {claim.value} is no bijection on the elements of {claim.of}")
    return view(source, claim.axes)


def prove(context: Context, claim: Claim) -> Proof:
    """The proof of a claim from the accepted ones.

    Raises:
        UnprovableError: there is none; the message gives the first difference.
    """
    USED.clear()
    found = Translator(context.result, context.leaves, context.block)
    term = found.term(claim.value)
    reached = {context.claims[name].of for name in found.reached}
    starts = {name: context.original_leaf(name) for name in {*reached, *context.original.inputs}}
    expected = Translator(context.original, starts, context.block)
    source = expected.term(claim.of)
    wanted = claimed_view(claim, source)
    if reason := difference(term, wanted):
        raise UnprovableError(reason)
    return Proof(frozenset(found.nodes), tuple(sorted(USED)), source.shape)


@dataclass(slots=True)
class Verdict:
    """The outcome of an accepted certificate.

    Attributes:
        proofs: the proofs, by value of the result.
        tested: the claims of values that are only tested, with the nodes between them and claimed values.
        nodes: the number of nodes of the result.
    """

    proofs: dict[str, Proof] = field(default_factory=dict)
    tested: dict[str, tuple[Claim, frozenset[int]]] = field(default_factory=dict)
    nodes: int = 0

    @property
    def tested_nodes(self) -> frozenset[int]:
        """The nodes of the result that are only tested."""
        return frozenset[int]().union(*(nodes for _, nodes in self.tested.values()))

    @property
    def proven_nodes(self) -> frozenset[int]:
        """The nodes of the result that are proven and in no tested part."""
        return frozenset[int]().union(*(proof.nodes for proof in self.proofs.values())) - self.tested_nodes


def check(certificate: Certificate, original: Model, result: Model, *, allow_tested: bool = False) -> Verdict:
    """Check a certificate of two models.

    Args:
        certificate: the claims.
        original: the original.
        result: the result.
        allow_tested: accept claims without a proof; the caller has to test them.

    Raises:
        CertificateError: it is refused; the message gives the claim and the reason.
    """
    _check_hashes(certificate, original, result)
    check_interface(original, result)
    if certificate.block not in BLOCKS and any(node.domain == NCHWC for node in result.nodes):
        raise CertificateError(f"`block` is {certificate.block}; onnxruntime has blocks of {BLOCKS[0]} or {BLOCKS[1]}")
    context = Context(original, result, certificate.block)
    for name in result.inputs:
        context.accept(Claim.identity(name, original.types[name][0]))
    if not allow_tested and (open_claims := [claim.value for claim in certificate.claims if claim.tested]):
        raise CertificateError(
            f"is not proven, and neither are {len(open_claims) - 1} other values of {len(certificate.claims)}",
            where=open_claims[0],
            hint="--allow-tested compares them on random inputs",
        )
    verdict = Verdict(nodes=len(result.nodes))
    for claim in certificate.claims:
        if claim.value in context.claims or claim.value not in result.producers:
            raise CertificateError("is claimed twice, or no node computes it", where=claim.value)
        _check_claim(context, claim, verdict)
    _check_outputs(context)
    _check_coverage(context, verdict)
    return verdict


def _check_claim(context: Context, claim: Claim, verdict: Verdict) -> None:
    try:
        if claim.tested:
            if claim.axes != maps.identity(context.original_leaf(claim.of).shape):
                raise UnprovableError("only values in the same order of elements are tested")
            verdict.tested[claim.value] = claim, segment(context, claim.value)
            context.accept(claim)
            return
        proof = prove(context, claim)
    except Exception as fault:  # an invalid model or claim can break any assumption of a rule; it is refused then
        reason = str(fault) if isinstance(fault, UnprovableError) else f"{type(fault).__name__} in a rule ({fault})"
        raise CertificateError(f"is not proven to be {claim.of}: {reason}", where=claim.value) from fault
    verdict.proofs[claim.value] = proof
    context.accept(claim, proof.shape)


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


def check_interface(original: Model, result: Model) -> None:
    """Check that both models have the same inputs, outputs and opsets.

    Raises:
        CertificateError: they have not.
    """
    domains = {*original.opsets, *result.opsets}
    if any(original.opsets.get(domain, 1) != result.opsets.get(domain, 1) for domain in domains):
        raise CertificateError("the two models have different opsets")

    def interface(model: Model) -> list[tuple[str, bytes]]:
        values = [each for each in model.message.graph.input if each.name not in model.constants]
        values += model.message.graph.output
        return [(each.name, each.type.SerializeToString(deterministic=True)) for each in values]

    if interface(original) != interface(result):
        raise CertificateError("inputs or outputs have other names or types than in the original")
    if unknown := {name for name, _ in interface(original)} - original.types.keys():
        raise CertificateError("is no tensor, or has no shape", where=min(unknown))


def _check_outputs(context: Context) -> None:
    for name in context.result.outputs:
        claim = context.claims.get(name)
        if claim is None or claim.of != name or claim.axes != maps.identity(context.original_leaf(name).shape):
            raise CertificateError("is not claimed to be the output of that name", where=name)


def _check_coverage(context: Context, verdict: Verdict) -> None:
    missing = set(range(len(context.result.nodes))) - verdict.proven_nodes - verdict.tested_nodes
    if missing:
        node = context.result.nodes[min(missing)]
        raise CertificateError(
            f"{node.op_type} is justified by no claim", where=node.name or next(iter(node.output), "")
        )
