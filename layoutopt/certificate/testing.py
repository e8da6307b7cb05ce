"""Values of both models on random inputs, for claims that are tested and not proven; no part of the checker."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.check import Claim
from layoutopt.certificate.checker.model import Model
from layoutopt.certificate.checker.terms import Array, Shape
from layoutopt.errors import CertificateError

RUNS = 3
SCALES = (1.0, 1.0, 10.0)
SIZES = (2, 3, 5, 7, 4, 8, 16, 32, 64, 128, 224, 1)
"""Sizes that are tried for symbolic dimensions beyond the first axis, until the original runs."""
BATCHES = (2, 3, 1)
TOLERANCE = 1e-3
"""The largest difference of a tested value, relative to the largest absolute value in it."""


def measure(original: Model, result: Model, claims: Sequence[Claim]) -> list[float]:
    """The largest relative difference of every claim over some random inputs, of other sizes in every run if the model has any.

    Raises:
        CertificateError: a difference is larger than the tolerance, or onnxruntime does not run a model.
    """
    worst = [0.0] * len(claims)
    for seed, sizes in enumerate(fitting_sizes(original, RUNS) if claims else ()):
        feeds = random_inputs(original, seed, sizes)
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


def fitting_sizes(model: Model, count: int) -> list[dict[str, int]]:
    """Sizes of the symbolic dimensions of the inputs at which the model runs, `count` times, different ones if there are any.

    Raises:
        CertificateError: it runs at none of the sizes that are tried.
    """
    places = [(extent, axis) for name in model.inputs for axis, extent in enumerate(model.types[name][0])]
    names = {extent: axis for extent, axis in reversed(places) if isinstance(extent, str)}
    if not names:
        return [{}] * count
    found: list[dict[str, int]] = []
    fault: CertificateError | None = None
    for batch, size in [
        *((batch, size) for size in SIZES for batch in BATCHES[:1]),
        *((b, s) for s in SIZES for b in BATCHES[1:]),
    ]:
        sizes = {name: size if axis else batch for name, axis in names.items()}
        try:
            run(model, random_inputs(model, 0, sizes), [])
        except CertificateError as error:
            fault = error
            continue
        if sizes not in found:
            found.append(sizes)
        if len(found) == count:
            return found
    if not found:
        raise CertificateError(
            "no size of the symbolic dimensions fits the original, so nothing can be tested"
        ) from fault
    return (found * count)[:count]


def random_inputs(model: Model, seed: int, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random arrays for the inputs of a model, for sizes of symbolic dimensions by name."""
    random = np.random.default_rng(seed)
    feeds = {}
    for name in model.inputs:
        shape, dtype = model.types[name]
        extents = [size if isinstance(size, int) else sizes[size] for size in shape]
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        scale = SCALES[seed % len(SCALES)]
        array: Any = (
            random.normal(size=extents, scale=scale) if np.dtype(kind).kind in "fV" else random.integers(0, 2, extents)
        )
        feeds[name] = array.astype(kind)
    return feeds


def run(model: Model, feeds: dict[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The named values for some inputs, computed without optimisations of onnxruntime."""
    import onnxruntime

    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    known = {value.name for value in message.graph.output} | set(feeds)
    message.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(message.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = [name for name in names if name not in feeds] or [model.outputs[0]]
        return dict(zip(wanted, session.run(wanted, feeds), strict=True)) | {
            name: feeds[name] for name in names if name in feeds
        }
    except Exception as fault:
        raise CertificateError(f"onnxruntime does not run a model for a test ({str(fault).splitlines()[0]})") from fault
