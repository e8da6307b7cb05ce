"""Comparison of two model files without a record of the rewrite: `layoutopt verify A B`.

The comparison is the one of `optimize`. Values that both models have are matched by name and content: on one set of inputs,
the array that B computes for a name of A must contain the tensor of A in a known format. A wrong match hides no fault, because
the segments on both sides of it differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from layoutopt import inference, onnx_io
from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array
from layoutopt.runtime.errors import RUN_ERRORS, raise_if_out_of_memory
from layoutopt.sample_inputs import prepare_inputs
from layoutopt.verification.cuts import CutCandidates, ObservedValue, evenly_spaced
from layoutopt.verification.difference import difference
from layoutopt.verification.edits import add_outputs, computed_names
from layoutopt.verification.gate import compare
from layoutopt.verification.runnable import Runnable, as_runnable, with_definitions, with_seeds
from layoutopt.verification.runs import Request, run_original
from layoutopt.verification.verdict import Verification

MAX_MATCHES = 96
"""Largest number of values of A that are searched for in B."""

MATCH_TOLERANCE = 0.05
"""Largest difference of two matching arrays, relative to the largest magnitude."""

FORMAT_SEPARATOR = "__"
"""Separator of a value's name and its format in names that layoutopt generates: `relu__NCHW8c`."""

_BLOCKS = (32, 16, 8, 4)  # largest first: of several matching formats the one with the largest block is chosen
_LETTERS = "ABCDE"


def verify_files(
    original: Path, rewritten: Path, request: Request | None = None, graphs: Sequence[Graph] = ()
) -> Verification:
    """Compare two files on random inputs, as a whole and segment by segment.

    Args:
        original: the reference model.
        rewritten: the model to check.
        request: pins, test inputs, seed and time limits; by default the generator of inputs follows from the original's graph.
        graphs: the graphs of both models, if already read.

    Raises:
        ModelError: a file cannot be read.
        DimensionError: the original has no such symbolic dimension.
    """
    graphs = graphs or [inference.lift(onnx_io.read(path)) for path in (original, rewritten)]
    request = request or Request(inputs=prepare_inputs(original, graphs[0])[0])
    if mismatch := interface_mismatch(*graphs):
        return Verification("failed", mismatch)
    candidates = CutCandidates.of(graphs[0])
    with scratch_folder() as folder:
        prepared = [
            with_definitions(as_runnable(onnx_io.read(path), folder / f"copy{number}.onnx", str(path)))
            for number, path in enumerate((original, rewritten))
        ]
        first, second = (with_seeds(model) if candidates.has_random_ops else model for model, _ in prepared)
        match = partial(matching_values, first, second, request)
        verdict = compare(first, second, match, candidates, request, always_cuts=True)
        return replace(verdict, defined_block=max(block for _, block in prepared))


def interface_mismatch(original: Graph, rewritten: Graph) -> str:
    """The difference of two models' inputs and outputs as text; empty if both take the same inputs."""
    ours, theirs = ([value.name for value in graph.inputs] for graph in (original, rewritten))
    if set(ours) != set(theirs):
        only = (", ".join(sorted(set(one) - set(other))) or "none" for one, other in ((ours, theirs), (theirs, ours)))
        return "the models take different inputs: only the first has {}, only the second {}".format(*only)
    types = {value.name: value.dtype for value in rewritten.inputs}
    for value in original.inputs:
        if value.dtype is not types[value.name]:
            labels = [each.label if each is not None else "no tensor" for each in (value.dtype, types[value.name])]
            return (
                f"the models take different inputs: {value.name} is {labels[0]} in the first, {labels[1]} in the second"
            )
    lacking = {value.name for value in original.outputs} - {value.name for value in rewritten.outputs}
    return f"the second model lacks the outputs {', '.join(sorted(lacking))}" if lacking else ""


def matching_values(
    original: Runnable, rewritten: Runnable, request: Request, names: Sequence[str]
) -> list[ObservedValue]:
    """The values that both models compute, with their names and formats in the rewritten model."""
    if not names:
        return []
    messages = original.message(), rewritten.message()
    ours, theirs = (computed_names(message) for message in messages)
    renamed = {name.rpartition(FORMAT_SEPARATOR)[0]: name for name in sorted(theirs) if FORMAT_SEPARATOR in name}
    pairs = {name: name if name in theirs else renamed.get(name, "") for name in names if name in ours}
    chosen = evenly_spaced([(one, other) for one, other in pairs.items() if other], MAX_MATCHES)
    for side, message in enumerate(messages):
        add_outputs(message, [pair[side] for pair in chosen])
    try:
        session = original.edited(messages[0]).session(is_optimised=False)
        (run, *_), _ = run_original(session, request)
        session = rewritten.edited(messages[1]).session(is_optimised=False)
        pinned = request.counterparts()
        feed = {name: pinned[name].packed(x) if name in pinned else x for name, x in run.feed.items()}
        outputs = session.run(None, feed, request.limits.run)
        actual_values = dict(zip([each.name for each in session.get_outputs()], outputs, strict=True))
    except RUN_ERRORS as error:  # the comparison as a whole reports the model that does not run
        raise_if_out_of_memory(error)
        return []
    found = (_match(pair, run.values[pair[0]], actual_values[pair[1]]) for pair in chosen)
    return [each for each in found if each is not None]


def _match(names: tuple[str, str], expected: Any, actual: Any) -> ObservedValue | None:
    """The observed value, if an array of the rewritten model contains the original's tensor in a known format."""
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray) or expected.dtype != actual.dtype:
        return None
    found = [ObservedValue(*names, format, actual.shape) for format in _formats(expected, actual)]
    differences = [difference(expected, each.unpacked(actual, expected)).largest for each in found]
    least = min(differences, default=MATCH_TOLERANCE + 1)
    return found[differences.index(least)] if least <= MATCH_TOLERANCE else None


def _formats(expected: Array, actual: Array) -> Iterator[Format]:
    """The formats in which an array may contain a tensor: any order of its axes, or one blocked axis.

    An array with one axis fewer than its blocked format comes from a blocked kernel of onnxruntime, NCHW8c or NCHW16c.
    """
    rank = expected.ndim
    orders = permutations(range(rank)) if rank <= 5 else [range(rank)]
    plain = (Format.plain(tuple(order)) for order in orders)
    yield from (format for format in plain if format.physical_shape(expected.shape) == actual.shape)
    for axis, block in product(range(1, rank) if 2 < rank <= 5 else (), _BLOCKS):
        rest = "".join(_LETTERS[other] for other in range(1, rank) if other != axis)
        letter = _LETTERS[axis]
        for order in (f"{letter}{rest}", f"{rest}{letter}"):
            format = Format.parse(f"{_LETTERS[0]}{order}{block}{letter.lower()}", _LETTERS[:rank])
            physical = static_shape(format.physical_shape(expected.shape))
            if physical == actual.shape or (prod(physical) == actual.size and order.startswith(letter)):
                yield format
