"""Shape and Size: what a tensor's type says. They read no element, so any format will do."""

import numpy as np

from layoutopt.ir.types import DType, Lanes, Op, Signature, TensorType, Value
from layoutopt.ops.base import Builder, LayoutRule, register
from layoutopt.ops.passage import NO_LANES
from layoutopt.ops.signatures import Inapplicable, Known, X, signature_of


@register
class ShapeOf(LayoutRule):
    """The logical extents, whatever the array looks like."""

    family = "shape_of"
    ops = ("Shape", "Size")
    formats = "any"
    becomes = NO_LANES

    def complete(self, op: Op, known: Known) -> Signature | Inapplicable:
        """Any format of the input whose symbolic extents can be read off the array."""
        x, format = op.inputs[0], known.get(X)
        if x is None or x.shape is None or format is None:
            return Inapplicable("the format of the input is not given")
        if any(isinstance(x.shape[axis], str) for axis in format.blocked_axes):
            return Inapplicable("a blocked extent is unknown")
        return signature_of(op, {X: format})

    def lanes(self, op: Op, signature: Signature, inputs: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """They are not looked at."""
        return (Lanes.ZERO,)

    def is_direct(self, op: Op, signature: Signature) -> bool:
        """Nothing is converted: extents are read off the array as it lies."""
        return True

    def _asked(self, op: Op, rank: int) -> slice:
        """The axes that Shape is asked for, since opset 15."""
        return slice(op.integer("start", 0), op.integer("end", rank)) if op.op_type == "Shape" else slice(None)

    def lower(self, op: Op, build: Builder) -> None:
        """Extents that are known as constants, the others from the shape of the array."""
        x, array = op.inputs[0], build.input(0)
        assert x is not None and x.shape is not None and array is not None and array.shape is not None
        (extents,) = build.op("Shape", [array], [TensorType(DType.INT64, (len(array.shape),))])
        places = {part.axis: place for place, part in enumerate(build.format(X).parts) if not part.block}
        pieces: list[Value | None] = []
        for axis in range(len(x.shape))[self._asked(op, len(x.shape))]:
            dim = x.shape[axis]
            if isinstance(dim, int):
                pieces.append(build.constant(np.asarray([dim], dtype=np.int64), "extent"))
                continue
            place = build.constant(np.asarray([places[axis]], dtype=np.int64), "place")
            pieces += build.op("Gather", [extents, place], [TensorType(DType.INT64, (1,))])
        whole = TensorType(DType.INT64, (len(pieces),))
        result = (
            build.op("Concat", pieces, [whole], {"axis": 0})[0]
            if pieces
            else build.constant(np.zeros(0, np.int64), "extents")
        )
        if op.op_type == "Size":
            (result,) = build.op("ReduceProd", [result], [TensorType(DType.INT64, ())], {"keepdims": 0})
        build.set_output(0, result)
