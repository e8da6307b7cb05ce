"""Padding of blocked tensors: a fault that nonzero padding causes, and the padding states of layoutopt.

python examples/zero_padding.py

17 channels in blocks of 16 have 15 padding elements. oneDNN's convention is that padding is zero: every reader of a tensor
relies on it, and every writer keeps it. An elementwise function with f(0) != 0 that runs over the physical array violates the
convention without an error, and the next op that sums over channels includes the padding.
"""

import numpy as np
from onnx import ModelProto, numpy_helper, parser

import layoutopt
from layoutopt.systems.onednn import MemoryDescriptor

CHANNELS = 17


def by_hand() -> None:
    """The fault, on a numpy buffer."""
    md = MemoryDescriptor.with_tag((1, CHANNELS, 2, 2), "f32", "nChw16c")
    x = np.random.default_rng(0).normal(size=md.dims).astype(np.float32)
    memory = md.pack(x)
    print(f"{x.size} elements in {memory.size}, padded to {md.padded_dims}")

    def sum_of_blocks(memory: np.ndarray) -> float:
        """A reduction that relies on the convention: it adds all physical elements."""
        return float(memory.sum())

    for name, function in (("tanh, f(0) = 0", np.tanh), ("exp, f(0) = 1", np.exp)):
        expected, found = float(function(x).sum()), sum_of_blocks(function(memory))
        print(f"  {name}: the sum should be {expected:.2f} and is {found:.2f}")

    cleared = md.pack(np.exp(x))  # as a primitive of oneDNN does: writes zeros into the padding
    print(f"  exp, padding set to zero: {sum_of_blocks(cleared):.2f}")


def model() -> ModelProto:
    """A convolution, an Exp with nonzero padding, and a convolution that sums over channels."""
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[1,17,56,56] x) => (float[1,17,56,56] y) {'
        " a = Conv <pads = [1,1,1,1]> (x, w) b = Exp(a) y = Conv <pads = [1,1,1,1]> (b, w) }"
    )
    weight = np.random.default_rng(1).normal(size=(CHANNELS, CHANNELS, 3, 3), scale=0.02)
    made.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "w"))
    return made


def planned() -> None:
    """The same ops in a plan: the padding state is part of the storage of every value."""
    result = layoutopt.optimize(model(), "ascend-910b")
    for op in result.report.ops:
        print(f"  {op.kind}: {', '.join(filter(None, op.inputs))} -> {', '.join(filter(None, op.outputs))}")
    print("  the filter is zero in the padding, so finite padding of the input has no effect; no mask is needed")
    print(f"  equal to the original: {result.report.verification.status}")


def main() -> None:
    by_hand()
    planned()


if __name__ == "__main__":
    main()
