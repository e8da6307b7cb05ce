"""The dialect `ops`: expands ops and layout conversions to standard ONNX ops, for runtimes without model-local functions.

The dialect `standard` is the same on plans with the formats that ONNX can express, for every runtime.
"""

from layoutopt.dialects.group_norms import MeansPerChannel
from layoutopt.dialects.lowering import Dialect
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks, ShareTransposes, SimplifyReshapes
from layoutopt.dialects.plain_winograd import PlainWinograd
from layoutopt.passes import HoistFromQdqGroups


class Ops(Dialect):
    """Expands ops and conversions to standard ONNX ops: Conv in NHWC  -->  Transpose, Conv, Transpose.

    The conversions are written outside of QDQ groups, on integers, since runtimes match a group by adjacent ops.
    """

    name = "ops"
    passes = (
        EqualizeMatmulRanks(),
        HoistFromQdqGroups(),
        SimplifyReshapes(moves_past_elementwise=True),
        *COMPACT,
    )


class Standard(Ops):
    """Writes standard ONNX ops in the formats that they have: Relu in NHWC  -->  Relu on an array of that shape.

    A convolution has another format only if it is pinned, and is then written with Transposes, as in the dialect `ops`. Where
    kernels of the runtime are timed, 3x3 convolutions may be written by Winograd's algorithm, and group normalisations by means
    per channel.
    """

    name = "standard"
    passes = (*Ops.passes[: -len(COMPACT)], ShareTransposes(), PlainWinograd(), MeansPerChannel(), *COMPACT)
