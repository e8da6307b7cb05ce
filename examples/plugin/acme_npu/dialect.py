"""The dialect `acme`: calls of functions with the names that the compiler of the Acme NPU reads."""

from dataclasses import replace

from layoutopt.extend import Functions, Label, Op


class Acme(Functions):
    """Calls functions named as ops: Conv in NHWC  -->  layoutopt.acme.Conv <formats = "(NHWC, OHWI) -> (NHWC)">."""

    name = "acme"

    def label(self, op: Op) -> Label:
        """The name of the op itself: functions with other bodies are overloads of one function."""
        return replace(super().label(op), name=op.op_type, domain="layoutopt.acme", has_overloads=True)
