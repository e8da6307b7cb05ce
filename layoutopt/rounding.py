"""Is what differs between two quantised models rounding? Every unit of the rewritten one is given what the original computed.

Where a model rounds, sums in another order may fall on the other side: one step, here and there. The next layers make more of
it, so that after many of them nothing can be told any more. So the rewritten model is cut where there are integers, and
computes every piece from the integers of the original:

    x -> [ piece ] -> q'      q -> [ piece ] -> p'      p -> [ piece ] -> y'

Between q' and q, p' and p there may be one step, in one element of a thousand; y' has to be y as always. Two channels that have
changed places are many steps apart.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.types import Array
from layoutopt.onnx_io import COMPUTED, nature
from layoutopt.onnx_io.session import Session
from layoutopt.probes import Probe
from layoutopt.sizes import Range, checked
from layoutopt.trials import symbols_of, trials
from layoutopt.verify import Comparison, Verification, compare, packed, run_original, unpacked, within

FAR = 1
"""How many steps a rounding may be off."""

OFTEN = 1e-3
"""In which part of the elements it may be; in one of them always."""


def step_by_step(
    original: bytes,
    rewritten: bytes,
    steps: Sequence[Probe],
    probes: Sequence[Probe] = (),
    *,
    pins: Mapping[str, Format] | None = None,
    dims: Mapping[str, int | Range] | None = None,
    seed: int = 0,
) -> Verification:
    """Compare two models piece by piece, as they say, without onnxruntime's optimisations.

    Args:
        original: the model to go by, with the integers between the pieces behind its outputs.
        rewritten: the model to judge, cut at the same integers: it takes them under their names, and gives those that it
            computes itself under these names and `COMPUTED`.
        steps: the integers, which have another name or format in the rewritten model.
        probes: further outputs of both models that have.
        pins: the formats that the rewritten model has its inputs and outputs in, where not canonical.
        dims: sizes of symbolic dimensions to try.
        seed: of the random inputs.
    """
    places = {probe.original: probe for probe in (*probes, *steps)}
    between = {probe.original for probe in steps}
    formats = {**{name: probe.format for name, probe in places.items()}, **(pins or {})}
    try:
        session = Session(original, optimised=False)
        symbols = symbols_of(session)
        known = checked([each.name for each in symbols], dims or {})
        runs, _ = run_original(session, trials(symbols, known), seed)
        outputs = [output.name for output in session.get_outputs()]
        session = Session(rewritten, optimised=False)
        comparisons: list[Comparison] = []
        for run in runs:
            wants = dict(zip(outputs, run.outputs, strict=True))
            feed = {name: packed(name, value, formats) for name, value in run.feed.items()}
            feed |= {places[name].rewritten: packed(name, wants[name], formats) for name in between if name in wants}
            names = [_given(name, places, between) for name in outputs]
            gots = [
                unpacked(*each, formats) for each in zip(outputs, session.run(names, feed), wants.values(), strict=True)
            ]
            comparisons += [
                _rounded(name, want, got) if name in between else compare(name, want, got)
                for name, want, got in zip(outputs, wants.values(), gots, strict=True)
            ]
    except Exception as error:  # onnxruntime's exceptions have no common base
        return Verification("not verified", f"the models cannot be run piece by piece: {error}")
    verdict = Verification("failed", "", tuple(comparisons))
    return within(verdict, nature(original)) or verdict


def _given(name: str, places: Mapping[str, Probe], between: set[str]) -> str:
    """What the rewritten model calls what it computes."""
    known = places[name].rewritten if name in places else name
    return f"{known}{COMPUTED}" if name in between else known


def _rounded(name: str, want: Array, got: Array) -> Comparison:
    """Integers against others: an error of 1 is as much as may be."""
    if want.shape != got.shape or want.dtype != got.dtype:
        return Comparison(name, str(want.dtype), np.inf, 1.0)
    steps = np.abs(want.astype(np.int64) - got.astype(np.int64))
    most = max(1.0, OFTEN * steps.size)
    error = max(float(steps.max(initial=0)) / FAR, float(np.count_nonzero(steps)) / most)
    return Comparison(name, str(want.dtype), error, 1.0)
