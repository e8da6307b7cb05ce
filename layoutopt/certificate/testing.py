"""Values of both models on random inputs, for claims that are tested and not proven; no part of the checker."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import onnx
from onnx import helper

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.check import Claim
from layoutopt.certificate.checker.model import Model
from layoutopt.certificate.checker.terms import Array, Shape
from layoutopt.errors import CertificateError
from layoutopt.inference import lift
from layoutopt.onnx_io.interface import Interface, declared_inputs
from layoutopt.onnx_io.reader import from_message
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs

RUNS = 3
SCALES = (1.0, 1.0, 10.0)
TOLERANCE = 1e-3
"""The largest difference of a tested value, relative to the largest absolute value in it."""


def measure(original: Model, result: Model, claims: Sequence[Claim]) -> list[float]:
    """The largest relative difference of every claim over some random inputs, of other sizes in every run if the model has any.

    Raises:
        CertificateError: a difference is larger than the tolerance, or onnxruntime does not run a model.
    """
    worst = [0.0] * len(claims)
    for feeds in sample_inputs(original, RUNS) if claims else ():
        wanted = run(original, feeds, sorted({claim.of for claim in claims}))
        found = run(result, feeds, sorted({claim.value for claim in claims}))
        for place, claim in enumerate(claims):
            a, b = wanted[claim.of], found[claim.value]
            if a.dtype != b.dtype or a.size != b.size:
                raise CertificateError(f"has another element type or size than {claim.of}", where=claim.value)
            axes = _static(claim.axes, a.shape, original.types[claim.of][0])
            expected = maps.rearranged(a, axes, maps.shape_of(axes))
            if expected.shape != b.shape and claim.value not in result.blocked:
                raise CertificateError(f"has the shape {b.shape}, the claim has {expected.shape}", where=claim.value)
            expected = expected.reshape(b.shape)
            worst[place] = max(worst[place], error := _error(expected, b))
            if not error <= TOLERANCE:
                raise CertificateError(
                    f"differs from {claim.of} by {error:.3g} of its largest absolute value", where=claim.value
                )
    return worst


def _error(a: Array, b: Array) -> float:
    if a.dtype.kind not in "fV":
        return 0.0 if np.array_equal(a, b) else float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    special = ~np.isfinite(a) | ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return float("inf")
    a, b = a[~special], b[~special]
    return float(np.abs(a - b).max() / (np.abs(a).max() or 1)) if a.size else 0.0


def _static(axes: maps.Axes, shape: tuple[int, ...], symbolic: Shape) -> maps.Axes:
    sizes = {name: size for name, size in zip(symbolic, shape, strict=True) if isinstance(name, str)}
    return tuple(
        tuple(
            (axis, stride, sizes.get(extent, extent) if isinstance(extent, str) else extent)
            for axis, stride, extent in group
        )
        for group in axes
    )


def sample_inputs(original: Model, count: int) -> list[dict[str, Array]]:
    """Sets of random inputs of a model, of other sizes in every set if it has symbolic dimensions.

    Raises:
        LayoutoptError: the model cannot be lifted, or an input has a type without random values.
    """
    model = from_message(original.message)
    interface, samples = Interface(declared_inputs(model), ()), SampleInputs.of(lift(model))
    sizes = samples.sizes_to_compare(interface)
    feeds = (samples.draw(interface, seed, sizes[seed % len(sizes)]) for seed in range(count))
    return [
        {name: array * array.dtype.type(scale) if array.dtype.kind in "fV" else array for name, array in feed.items()}
        for feed, scale in zip(feeds, cycle(SCALES), strict=False)
    ]


def run(model: Model, feeds: dict[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The named values for some inputs, computed without optimisations of onnxruntime."""
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    known = {value.name for value in message.graph.output} | set(feeds)
    message.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    try:
        session = Session(message.SerializeToString(), is_optimised=False)
        wanted = [name for name in names if name not in feeds] or [model.outputs[0]]
        return dict(zip(wanted, session.run(wanted, feeds), strict=True)) | {
            name: feeds[name] for name in names if name in feeds
        }
    except Exception as fault:
        raise CertificateError(f"onnxruntime does not run a model for a test ({str(fault).splitlines()[0]})") from fault
