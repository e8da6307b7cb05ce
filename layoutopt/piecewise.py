"""Two models that round or decide differ: by rounding alone? Every piece of the rewritten one gets what the original computed.

Where a model rounds, sums in another order may fall on the other side: one step, here and there. The next layers make more of
it, so that after many of them nothing can be told any more. So the rewritten model is cut where there are integers, and
computes every piece from the integers of the original:

    x -> [ piece ] -> q'      q -> [ piece ] -> p'      p -> [ piece ] -> y'

y' has to be y as always, and q' what the fractions behind q are rounded to if they are larger or smaller by no more than
fractions may differ: by the tolerance of their type times the largest of them. So a rounding is judged as exactly as the
fractions would be, which the rewritten model need not have as a tensor of their own. The same holds of fractions that a Cast
cuts off, wherever they are, and of such integers as are outputs. Where an op computes integers from integers, there may be one
step. Neither may be often, since sums in another order hardly differ: for 8 bits from float32 in one element of a thousand.

Where a model decides (`ops.decisions`), by the largest scores for one, it is cut at the fractions by which it does. These have
to agree as outputs do; behind them both models decide by the same numbers, so that there is nothing to be tolerated.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io import COMPUTED, LEAST, MARGIN, MOST, nature
from layoutopt.onnx_io.session import Session
from layoutopt.probes import Probe
from layoutopt.sizes import Range, checked
from layoutopt.trials import symbols_of, trials
from layoutopt.verify import TOLERANCES, Comparison, Verification, compare, packed, run_original, unpacked, within

ERRORS = 32
"""How many rounding errors of the largest fraction may lie between two of them, usually: what that moves past a rounding is how
often integers may differ. One of them always may."""


_FEW_BITS = 16  # so many are used up, of more only as many as the integers are large


def margin(dtype: DType) -> Array:
    """By which part of the largest of them fractions may differ before they are rounded, in their own type."""
    return np.asarray(TOLERANCES[dtype.label], dtype.numpy)


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
        original: the model to go by, with what is between the pieces behind its outputs, and what integers among it might have
            been, and integers that are its outputs.
        rewritten: the model to judge, cut in the same places: it takes what is there under its name, and gives what it
            computes itself under this name and `COMPUTED`.
        steps: integers and fractions between the pieces, which have another name or format in the rewritten model.
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
        nudged = {name for name in outputs if f"{name}{MARGIN}" in outputs}
        nearby = {f"{name}{end}" for name in nudged for end in (LEAST, MOST, MARGIN)}
        session = Session(rewritten, optimised=False)
        comparisons: list[Comparison] = []
        for run in runs:
            wants = dict(zip(outputs, run.outputs, strict=True))
            feed = {name: packed(name, value, formats) for name, value in run.feed.items()}
            feed |= {places[name].rewritten: packed(name, wants[name], formats) for name in between if name in wants}
            asked = [name for name in outputs if name not in nearby]
            gots = session.run([_given(name, places, between) for name in asked], feed)
            for name, given in zip(asked, gots, strict=True):
                got = unpacked(name, given, wants[name], formats)
                is_step = (name in between or name in nudged) and wants[name].dtype.kind in "iu"
                comparisons.append(_rounded(name, wants, got) if is_step else compare(name, wants[name], got))
    except Exception as error:  # onnxruntime's exceptions have no common base
        return Verification("not verified", f"the models cannot be run piece by piece: {error}")
    verdict = Verification("failed", "", tuple(comparisons))
    return within(verdict, nature(original)) or verdict


def _given(name: str, places: Mapping[str, Probe], between: set[str]) -> str:
    """What the rewritten model calls what it computes."""
    known = places[name].rewritten if name in places else name
    return f"{known}{COMPUTED}" if name in between else known


def _rounded(name: str, wants: Mapping[str, Array], got: Array) -> Comparison:
    """Integers against others: an error of 1 is as much as may be."""
    want = wants[name]
    if want.shape != got.shape or want.dtype != got.dtype:
        return Comparison(name, str(want.dtype), np.inf, 1.0)
    margin = wants.get(f"{name}{MARGIN}", np.float32(np.nan))
    wide = got.astype(np.int64)
    steps = np.abs(want.astype(np.int64) - wide)
    far = steps.max(initial=0)
    if np.isfinite(margin):
        ends = [wants[f"{name}{end}"].astype(np.int64) for end in (LEAST, MOST)]
        beyond = np.maximum(np.minimum(*ends) - wide, wide - np.maximum(*ends)).max(initial=0)
        far = 1 + beyond if beyond > 0 else 0
    bits = DType.of(want).bits
    many = 2.0**bits if bits <= _FEW_BITS else 1 + 2 * np.abs(want.astype(np.float64)).max(initial=0)
    often = min(1.0, ERRORS * float(np.finfo(margin.dtype).eps) * many) * steps.size
    error = max(float(far), np.count_nonzero(steps) / max(1.0, often))
    return Comparison(name, str(want.dtype), error, 1.0)
