"""Winograd's minimal filtering in standard operators, for runtimes whose kernels are timed."""

import numpy as np
from typing_extensions import override

from layoutopt.dialects.onnxruntime.winograd import PLAIN, Arrays, Winograd, WinogradRewriter
from layoutopt.formats import Shape
from layoutopt.ir.types import Attribute, Value, float32_type
from layoutopt.ops import estimated_extent
from layoutopt.passes.base import PassContext


class PlainWinogradRewriter(WinogradRewriter):
    """Replaces one convolution on plain arrays by standard operators, whose formats the runtime chooses.

    The outputs of a tile are channels, which DepthToSpace interleaves, in channels-last formats, too.
    """

    @override
    def run(self) -> None:
        op, build, (rows, columns) = self._op, self._build, self._tiling
        pieces = [each for line in self._outputs(rows, self._row, [None] * rows.outputs, True) for each in line]
        images, counts = op.y.dims[0], (rows.count, columns.count)
        type = float32_type((images, self._filters * len(pieces), *counts))
        stacked = build.result("Concat", pieces, type, {"axis": 1})
        type = float32_type((images, self._filters, *(count * rows.outputs for count in counts)))
        result = build.result("DepthToSpace", [stacked], type, {"blocksize": rows.outputs})
        for axis, each in enumerate(self._tiling, 2):
            result = build.resize_axis(result, axis, each.extent)
        build.set_output(0, result)
        self._replace()

    @override
    def _sum(self, total: Arrays | None, factor: float, terms: Arrays, is_final: bool) -> Arrays:
        if total is None:
            return terms
        if factor != 1:
            number = self._build.constant(np.array(factor, np.float32), "factor")
            terms = self._each("Mul", terms, [number] * len(terms))
        return self._each("Add", total, terms)

    @override
    def _conv(self, operands: list[Value | None], image: Shape, is_final: bool, **fields: Attribute) -> Value:
        x, filter, bias, addend = (*operands, None, None)[:4]
        assert x is not None and filter is not None
        filters, channels, *kernel = map(estimated_extent, filter.dims)
        fields |= {"group": filters if channels == 1 else 1, "kernel_shape": tuple(kernel)}
        given = [x, filter] if bias is None else [x, filter, bias]
        type = float32_type((self._op.y.dims[0], filters, *image))
        y = self._build.result("Conv", given, type, fields)
        return y if addend is None else self._build.result("Add", [y, addend], type)


class PlainWinograd(Winograd):
    """The same on plain arrays, for a runtime whose kernels are timed; estimates count where the time for timing has ended.

    before: Conv(3x3)
    after:  36 x depthwise Conv -> 36 x Conv(1x1) -> Add, Sub, Mul -> Concat -> DepthToSpace
    """

    name = "plain-winograd"
    justifies_rewrite = True

    @override
    def block(self, context: PassContext) -> int:
        return PLAIN if context.time_graphs is not None else 0

    @property
    @override
    def rewriter(self) -> type[WinogradRewriter]:
        return PlainWinogradRewriter
