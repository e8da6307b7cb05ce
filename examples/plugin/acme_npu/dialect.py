"""The dialect `acme`: calls of functions with the names that the compiler of the Acme NPU reads."""

from layoutopt.extend import Functions, Label, Op


class Acme(Functions):
    """Conv in NHWC  -->  acme.npu.Conv <layouts = "(NHWC, OHWI) -> (NHWC)">."""

    name = "acme"

    def label(self, op: Op) -> Label:
        """The name of the op itself; an attribute has the formats, and overloads tell apart different bodies."""
        return Label(op.op_type, {"layouts": str(op.signature)}, domain="acme.npu", overloads=True)
