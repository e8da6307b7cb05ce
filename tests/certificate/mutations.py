"""Mutations of models and certificates, and the verdict of the checker on each.

A mutation is killed if the checker or onnxruntime refuses it. One that is accepted has to be an equal program: both models
are run, and their outputs agree within rounding. The hash in the certificate is that of the mutated model, so no mutation is
refused for its hash.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from fuzz.choices import Seeded
from fuzz.mutations import MUTATIONS, Edit, NoSuchPart, change_field
from onnx import helper, numpy_helper

from layoutopt.certificate.checker.check import Certificate, Claim, check, parse
from layoutopt.certificate.checker.model import Model, of_message
from layoutopt.certificate.producer import to_json
from layoutopt.errors import LayoutoptError
from layoutopt.runtime.errors import RUN_ERRORS
from layoutopt.runtime.session import Session
from layoutopt.verification.difference import difference

Random = random.Random
EQUAL = 2e-4  # of the largest absolute value of an output


@dataclass(frozen=True)
class Outcome:
    """The verdict on one mutation, `refused`, `equal`, `does not run` (in onnxruntime) or `WRONG`, and the reason."""

    kind: str
    verdict: str
    reason: str


@dataclass
class Subject:
    """A certified pair of models."""

    original: onnx.ModelProto
    result: onnx.ModelProto
    certificate: Certificate


def any_field(model: onnx.ModelProto, choose: Random) -> bool:
    """One field of one message: operands, attributes, types, extents, names, elements twice."""
    return _has_changed(change_field, model, choose)


def structure(model: onnx.ModelProto, choose: Random) -> bool:
    """Nodes bypassed, inserted, replaced, moved into a function or a branch; defaults of inputs."""
    return _has_changed(choose.choice(MUTATIONS), model, choose)


def _has_changed(edit: Edit, model: onnx.ModelProto, choose: Random) -> bool:
    before = model.SerializeToString(deterministic=True)
    try:
        edit(Seeded(choose.random()), model)
    except NoSuchPart:
        return False
    return model.SerializeToString(deterministic=True) != before


def mutated_constant(model: onnx.ModelProto, choose: Random) -> bool:
    """Another number in a constant: an integer by 1, a floating-point number by 1/1000 of the largest one or more."""
    tensor = choose.choice(list(model.graph.initializer))
    array = numpy_helper.to_array(tensor).copy()
    if not array.size:
        return False
    place = np.unravel_index(choose.randrange(array.size), array.shape)
    if array.dtype.kind == "f":
        scale = float(np.abs(array).max()) or 1.0
        array[place] += choose.choice((1e-3, 0.1, -1.0)) * scale
    else:
        array[place] = array[place] + 1 if array.dtype.kind != "b" else not array[place]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def _behind(model: onnx.ModelProto, choose: Random, nodes: list[onnx.NodeProto]) -> bool:
    """Nodes inserted behind a value: the first one reads "in", and readers of the value read "out" from then on."""
    position = choose.randrange(len(model.graph.node))
    name = model.graph.node[position].output[0]
    readers = [other for other in model.graph.node if name in other.input]
    for reader in readers:
        for place, each in enumerate(reader.input):
            if each == name:
                reader.input[place] = "out"
    nodes[0].input[0] = name
    for offset, node in enumerate(nodes):
        model.graph.node.insert(position + 1 + offset, node)
    return bool(readers)


def _pair(model: onnx.ModelProto, choose: Random, op: str, first: float, second: float) -> bool:
    """Two element-wise operators behind a value, with numbers as their second operands."""
    for name, number in (("first", first), ("second", second)):
        with np.errstate(over="ignore"):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(number, np.float32), name))
    nodes = [helper.make_node(op, ["in", "first"], ["between"]), helper.make_node(op, ["between", "second"], ["out"])]
    return _behind(model, choose, nodes)


def cancelling_constants(model: onnx.ModelProto, choose: Random) -> bool:
    """x + c + (d - c), d = 0 or a small number, with c from 10 to 10^12."""
    large = 10.0 ** choose.uniform(1, 12)
    return _pair(model, choose, "Add", large, choose.choice((0.0, 0.0, 0.3)) - large)


def cancelling_weights(model: onnx.ModelProto, choose: Random) -> bool:
    """Weights that the model computes, as a sum of a large number and the difference to it."""
    tensor = choose.choice([each for each in model.graph.initializer if each.data_type == 1] or [None])
    if tensor is None:
        return False
    array, large = numpy_helper.to_array(tensor), np.float32(10.0 ** choose.uniform(2, 9))
    model.graph.initializer.append(numpy_helper.from_array(large, "large"))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array - large), "rest"))
    model.graph.node.insert(0, helper.make_node("Add", ["large", "rest"], [tensor.name]))
    model.graph.initializer.remove(tensor)
    return True


def overflowing_product(model: onnx.ModelProto, choose: Random) -> bool:
    exponent = choose.choice((-1, 1)) * choose.randrange(20, 126)
    return _pair(model, choose, "Mul", 2.0**exponent, 2.0**-exponent)


def special_number(model: onnx.ModelProto, choose: Random) -> bool:
    """NaN, an infinite number, -0, a denormal number or a very large one in a constant."""
    tensor = choose.choice([each for each in model.graph.initializer if each.data_type == 1] or [None])
    if tensor is None:
        return False
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[choose.randrange(array.size)] = choose.choice((np.nan, np.inf, -np.inf, -0.0, 1e-42, 3e38))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def other_type(model: onnx.ModelProto, choose: Random) -> bool:
    """Numbers that are rounded to 16 bits."""
    to = choose.choice((10, 16))
    return _behind(
        model,
        choose,
        [helper.make_node("Cast", ["in"], ["half"], to=to), helper.make_node("Cast", ["half"], ["out"], to=1)],
    )


MODEL_MUTATIONS: tuple[Callable[[onnx.ModelProto, Random], bool], ...] = (
    *([any_field] * 8),
    *([structure] * 6),
    *(mutated_constant, mutated_constant, cancelling_constants, cancelling_constants, cancelling_weights),
    *(overflowing_product, special_number, other_type),
)


def mutated_certificate(certificate: Certificate, choose: Random) -> tuple[str, Certificate]:
    """A certificate with one change, and the name of the change."""
    claims = [each.model_dump() for each in certificate.claims]
    place = choose.randrange(len(claims))
    claim, other = claims[place], choose.choice(claims)
    change = choose.choice(("of", "value", "axes", "dropped", "moved", "twice", "block", "hash", "stride"))
    if change == "of":
        claim["of"] = other["of"]
    elif change == "value":
        claim["value"] = other["value"]
    elif change == "axes":
        axes = list(claim["axes"])
        choose.shuffle(axes)
        claim["axes"] = tuple(axes)
    elif change == "stride":
        digits = [(axis, stride * 2, extent) for group in claim["axes"] for axis, stride, extent in group]
        claim["axes"] = (tuple(digits),)
    elif change == "dropped":
        del claims[place]
    elif change == "moved":
        claims.insert(choose.randrange(len(claims)), claims.pop(place))
    elif change == "twice":
        claims.append(claim)
    elif change == "block":
        return change, certificate.model_copy(update={"block": certificate.block * 2})
    elif change == "hash":
        return change, certificate.model_copy(update={"original": certificate.result})
    return change, certificate.model_copy(update={"claims": tuple(Claim(**each) for each in claims)})


def outcomes(subject: Subject, count: int, seed: int) -> Iterator[Outcome]:
    """The verdicts on random mutations of a pair."""
    choose = Random(seed)
    original, result = of_message(subject.original), of_message(subject.result)
    produced = 0
    while produced < count:
        part = choose.choice(("result", "result", "original", "certificate"))
        if part == "certificate":
            kind, certificate = mutated_certificate(subject.certificate, choose)
            if certificate == subject.certificate:
                continue
            produced += 1
            yield _verdict(f"certificate: {kind}", certificate, original, result, is_same=True)
            continue
        mutate = choose.choice(MODEL_MUTATIONS)
        message = onnx.ModelProto()
        message.CopyFrom(subject.result if part == "result" else subject.original)
        try:
            if not mutate(message, choose):
                continue
        except ValueError:  # a mutation of this mutation does not apply, e.g. to an int in place of a float
            continue
        produced += 1
        kind = f"{part}: {mutate.__name__}"
        try:
            changed = of_message(message)
        except LayoutoptError as error:
            yield Outcome(kind, "refused", str(error))
            continue
        if part == "result":
            yield _verdict(kind, subject.certificate.model_copy(update={"result": changed.digest}), original, changed)
        else:
            yield _verdict(kind, subject.certificate.model_copy(update={"original": changed.digest}), changed, result)


def _verdict(kind: str, certificate: Certificate, original: Model, result: Model, *, is_same: bool = False) -> Outcome:
    try:
        check(parse(to_json(certificate)), original, result)
    except LayoutoptError as refusal:
        return Outcome(kind, "refused", str(refusal))
    try:
        error = 0.0 if is_same else largest_difference(original, result)
    except RUN_ERRORS as fault:  # onnxruntime does not run the result
        return Outcome(kind, "does not run", str(fault))
    return Outcome(kind, "equal" if error <= EQUAL else "WRONG", f"largest difference {error:.1e}")


def largest_difference(original: Model, result: Model) -> float:
    """The largest difference of outputs, relative to the largest absolute value of the output; 0 if the original does not run.

    The inputs are random, of standard deviation 1, 30 and 1000.
    """
    worst = 0.0
    for scale in (1, 30, 1000):
        try:
            feeds = random_inputs(original)
            scaled = {name: array * array.dtype.type(scale) for name, array in feeds.items()}
            first = run(original, scaled)
        except RUN_ERRORS:
            return 0.0
        second = run(result, scaled)
        worst = max(worst, *(difference(a, b).largest for a, b in zip(first, second, strict=True)))
    return worst


def run(model: Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs, computed without optimisations of onnxruntime."""
    return Session(model.message.SerializeToString(), is_optimised=False).run(None, feeds)


def random_inputs(model: Model) -> dict[str, np.ndarray]:
    """Random arrays for the inputs of a model; symbolic dimensions have the size 2."""
    random, feeds = np.random.default_rng(0), {}
    for name in model.inputs:
        shape, dtype = model.types[name]
        extents, kind = [size if isinstance(size, int) else 2 for size in shape], helper.tensor_dtype_to_np_dtype(dtype)
        numbers = random.normal(size=extents) if np.dtype(kind).kind in "fV" else random.integers(0, 2, extents)
        feeds[name] = np.asarray(numbers).astype(kind)
    return feeds
