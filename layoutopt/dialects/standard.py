"""The dialect `standard`: standard ONNX operators only, for every runtime. Plans use the formats that ONNX can express."""

from layoutopt.dialects.ops import Ops
from layoutopt.dialects.passes import COMPACT, FoldTransposes, ShareTransposes


class Standard(Ops):
    """Relu in NHWC  -->  Relu on an array of that shape; Conv stays in NCHW.

    A convolution has another format only if it is pinned, and is then written with Transposes, as in the dialect `ops`.
    """

    name = "standard"
    passes = (*Ops.passes[: -len(COMPACT)], ShareTransposes(), FoldTransposes(), *COMPACT)
