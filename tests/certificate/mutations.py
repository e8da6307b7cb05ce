"""Mutations of models and certificates, and the verdict of the checker on each.

A mutation is killed if the checker or onnxruntime refuses it. One that is accepted has to be an equal program: both models
are run, and their outputs agree within rounding. The hash in the certificate is that of the mutated model, so no mutation is
refused for its hash.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx
from fuzz.choices import Seeded
from fuzz.mutations import NoSuchPart, change_field
from onnx import helper, numpy_helper

from layoutopt.certificate.checker.check import Certificate, check, parse
from layoutopt.certificate.checker.model import Model, of_message
from layoutopt.certificate.producer import to_json
from layoutopt.certificate.testing import run
from layoutopt.errors import LayoutoptError

Random = random.Random
EQUAL = 2e-4  # of the largest absolute value of an output
_SWAPPED = {
    "Add": "Mul",
    "Mul": "Add",
    "Relu": "Sigmoid",
    "Sigmoid": "Relu",
    "Sub": "Add",
    "HardSwish": "Relu",
    "Softmax": "LogSoftmax",
}


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
    before = model.SerializeToString(deterministic=True)
    try:
        change_field(Seeded(choose.random()), model)
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


def bypassed_node(model: onnx.ModelProto, choose: Random) -> bool:
    position = choose.randrange(len(model.graph.node))
    node = model.graph.node[position]
    outputs = {value.name for value in model.graph.output}
    if not node.input or node.output[0] in outputs:
        return False
    for other in model.graph.node:
        for place, name in enumerate(other.input):
            if name == node.output[0]:
                other.input[place] = node.input[0]
    if choose.random() < 0.5:
        del model.graph.node[position]
    return True


def other_operator(model: onnx.ModelProto, choose: Random) -> bool:
    node = choose.choice([node for node in model.graph.node if node.op_type in _SWAPPED and not node.domain] or [None])
    if node is None:
        return False
    node.op_type = _SWAPPED[node.op_type]
    return True


def inserted_node(model: onnx.ModelProto, choose: Random) -> bool:
    """A Neg, or an Identity, behind a value."""
    position = choose.randrange(len(model.graph.node))
    name = model.graph.node[position].output[0]
    readers = [other for other in model.graph.node if name in other.input]
    if not readers:
        return False
    for reader in readers:
        for place, each in enumerate(reader.input):
            if each == name:
                reader.input[place] = f"{name}/inserted"
    model.graph.node.insert(
        position + 1, helper.make_node(choose.choice(("Neg", "Abs", "Identity")), [name], [f"{name}/inserted"])
    )
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


def function_call(model: onnx.ModelProto, choose: Random) -> bool:
    """A node as a call of a function; its attributes can be defaults of the function, or others."""
    node = choose.choice([each for each in model.graph.node if all(each.input)])
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    if choose.random() < 0.3 and inner.attribute:
        del inner.attribute[0]
    domain = choose.choice(("local", node.domain, "ai.onnx.ml"))
    names = list(dict.fromkeys(node.input))
    function = helper.make_function(
        domain, "F" if domain == "local" else node.op_type, names, list(node.output), [inner], model.opset_import
    )
    model.functions.append(function)
    if domain not in {each.domain for each in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    node.domain, node.op_type = domain, function.name
    del node.attribute[:]
    node.input[:] = names
    return True


def captured_value(model: onnx.ModelProto, choose: Random) -> bool:
    """A node in both branches of an If, which capture its operands in another order in one of them."""
    node = choose.choice([each for each in model.graph.node if len(each.output) == 1])
    branches = []
    for name in ("then", "else"):
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.output[0] = name
        if name == "else" and choose.random() < 0.5:
            inner.input[:] = list(inner.input)[::-1]
        branches.append(helper.make_graph([inner], name, [], [helper.make_empty_tensor_value_info(name)]))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(choose.random() < 0.5), "condition"))
    outer = helper.make_node("If", ["condition"], list(node.output), else_branch=branches[1], then_branch=branches[0])
    node.CopyFrom(outer)
    return True


def default_of_input(model: onnx.ModelProto, choose: Random) -> bool:
    """An initializer that callers can override, with the same or another default."""
    tensor = choose.choice(list(model.graph.initializer))
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return choose.random() < 0.5 or mutated_constant(model, choose)


MODEL_MUTATIONS: tuple[Callable[[onnx.ModelProto, Random], bool], ...] = (
    *([any_field] * 8),
    *(mutated_constant, mutated_constant, bypassed_node, other_operator, inserted_node, cancelling_constants),
    *(cancelling_constants, cancelling_weights, overflowing_product, special_number, other_type, function_call),
    *(captured_value, default_of_input),
)


def mutated_certificate(certificate: Certificate, choose: Random) -> tuple[str, Certificate]:
    """A certificate with one change, and the name of the change."""
    claims = list(certificate.claims)
    place = choose.randrange(len(claims))
    claim, other = claims[place], choose.choice(claims)
    change = choose.choice(("of", "value", "axes", "lemma", "dropped", "moved", "twice", "block", "hash", "stride"))
    if change == "of":
        claims[place] = replace(claim, of=other.of)
    elif change == "value":
        claims[place] = replace(claim, value=other.value)
    elif change == "axes":
        axes = list(claim.axes)
        choose.shuffle(axes)
        claims[place] = replace(claim, axes=tuple(axes))
    elif change == "stride":
        digits = [(axis, stride * 2, extent) for group in claim.axes for axis, stride, extent in group]
        claims[place] = replace(claim, axes=(tuple(digits),))
    elif change == "lemma":
        names = claim.lemmas[1:] if claim.lemmas else ("scale-into-filters",)
        claims[place] = replace(claim, lemmas=names)
    elif change == "dropped":
        del claims[place]
    elif change == "moved":
        claims.insert(choose.randrange(len(claims)), claims.pop(place))
    elif change == "twice":
        claims.append(claim)
    elif change == "block":
        return change, replace(certificate, block=certificate.block * 2)
    elif change == "hash":
        return change, replace(certificate, original=certificate.result)
    return change, replace(certificate, claims=tuple(claims))


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
            yield _verdict(kind, replace(subject.certificate, result=changed.digest), original, changed)
        else:
            yield _verdict(kind, replace(subject.certificate, original=changed.digest), changed, result)


def _verdict(kind: str, certificate: Certificate, original: Model, result: Model, *, is_same: bool = False) -> Outcome:
    try:
        check(parse(to_json(certificate)), original, result)
    except LayoutoptError as refusal:
        return Outcome(kind, "refused", str(refusal))
    try:
        error = 0.0 if is_same else difference(original, result)
    except LayoutoptError as fault:  # onnxruntime does not run the result
        return Outcome(kind, "does not run", str(fault))
    return Outcome(kind, "equal" if error <= EQUAL else "WRONG", f"largest difference {error:.1e}")


def difference(original: Model, result: Model) -> float:
    """The largest difference of outputs, relative to the largest absolute value of the output; 0 if the original does not run.

    The inputs are random, of standard deviation 1, 30 and 1000.
    """
    worst = 0.0
    for scale in (1, 30, 1000):
        try:
            feeds = random_inputs(original)
            scaled = {name: array * array.dtype.type(scale) for name, array in feeds.items()}
            first = run(original, scaled, original.outputs)
        except LayoutoptError:
            return 0.0
        second = run(result, scaled, result.outputs)
        for name in original.outputs:
            a, b = (np.asarray(each[name], np.float64) for each in (first, second))
            if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return float("inf")
            special = ~np.isfinite(a)
            if not np.array_equal(a[special], b[special], equal_nan=True):
                return float("inf")
            a, b = a[~special], b[~special]
            worst = max(worst, float(np.abs(a - b).max() / (np.abs(a).max() or 1.0))) if a.size else worst
    return worst


def random_inputs(model: Model) -> dict[str, np.ndarray]:
    """Random arrays for the inputs of a model; symbolic dimensions have the size 2."""
    random, feeds = np.random.default_rng(0), {}
    for name in model.inputs:
        shape, dtype = model.types[name]
        extents, kind = [size if isinstance(size, int) else 2 for size in shape], helper.tensor_dtype_to_np_dtype(dtype)
        numbers = random.normal(size=extents) if np.dtype(kind).kind in "fV" else random.integers(0, 2, extents)
        feeds[name] = np.asarray(numbers).astype(kind)
    return feeds
