"""Random inputs of models for the benchmarks on GPUs."""

from collections.abc import Mapping

import numpy as np
import onnxruntime


def random_inputs(session: onnxruntime.InferenceSession, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Inputs of a session by name: normal floats, or integers 0 and 1.

    Args:
        session: the session.
        sizes: the extents of symbolic dimensions by name or as `input[axis]`; 1 for others.
    """
    generator, feed = np.random.default_rng(0), {}
    for each in session.get_inputs():
        shape = [
            dim if isinstance(dim, int) else sizes.get(str(dim), sizes.get(f"{each.name}[{axis}]", 1))
            for axis, dim in enumerate(each.shape)
        ]
        if "int64" in each.type:
            feed[each.name] = generator.integers(0, 2, shape)
        else:
            feed[each.name] = generator.normal(size=shape).astype(np.float32)
    return feed
