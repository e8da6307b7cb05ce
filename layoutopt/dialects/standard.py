"""The dialect `standard`: standard ONNX operators only, for every runtime. Plans use the formats that these express."""

from layoutopt.dialects.ops import Ops
from layoutopt.dialects.passes import COMPACT, FoldTransposes, ShareTransposes


class Standard(Ops):
    """Relu in NHWC  -->  Relu on an array of that shape; Conv stays in NCHW.

    A convolution has another format only where it is pinned, and then Transposes around it, as in the dialect `ops`.
    """

    name = "standard"
    passes = (*Ops.passes[: -len(COMPACT)], ShareTransposes(), FoldTransposes(), *COMPACT)
