"""Models that draw random numbers: for a comparison, both draw the same ones.

An operator with the attribute `seed` draws the same sequence in every session, one part of it per run. The sessions of a
comparison run the same inputs in the same order.
"""

import onnx

from layoutopt.onnx_io.messages import nodes
from layoutopt.verification.runnable import Runnable

RANDOM_OPS = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
"""The operators of ONNX that draw random numbers."""

_SEED = 1.0


def with_seeds(model: Runnable) -> Runnable:
    """The model with a seed for every operator that draws random numbers; the model itself if it has no such operator."""
    try:
        message = model.message()
    except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
        return model
    unseeded = [
        each for each in nodes(message) if each.op_type in RANDOM_OPS and not each.domain and not _has_seed(each)
    ]
    if not unseeded:
        return model
    for node in unseeded:
        node.attribute.append(onnx.helper.make_attribute("seed", _SEED))
    return model.edited(message)


def _has_seed(node: onnx.NodeProto) -> bool:
    return any(each.name == "seed" for each in node.attribute)


__all__ = ["RANDOM_OPS", "with_seeds"]
