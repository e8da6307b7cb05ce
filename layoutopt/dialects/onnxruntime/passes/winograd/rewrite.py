"""Writes a Winograd convolution with onnxruntime's own kernels, on blocked arrays.

    B^T d      depthwise convolutions with stride m, whose padding does the borders
    products   convolutions along the axes that are not tiled, 1x1 if both are
    A^T        sums and differences, and depthwise 1x1 convolutions that add: sum + factor * x
    tiles      Concat on the arrays reshaped so that the outputs of a tile are an axis

A phase is the array of one output of every tile: of 4 x 4 outputs there are 16 phases, which are interleaved at the end. The
products of the points 0 and infinity add the other terms of the first and of the last output and apply the activation.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import prod

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import DOMAIN, float32_type
from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import minimal_filtering
from layoutopt.dialects.onnxruntime.passes.winograd.constants import Constants
from layoutopt.dialects.onnxruntime.passes.winograd.site import Site, Tiles
from layoutopt.formats import Dim, Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Value

_DECLARATION = re.compile(r"(.*)/winograd/(\d+)of(\d+)x(\d+)of(\d+)/")

Arrays = list[Value]
ComponentFunction = Callable[[int, Arrays | None, bool], Arrays]
"""Computes a component from its index, the addends of its elements, and whether the sums are results, to be activated."""


def error_growths(names: Iterable[str]) -> dict[str, float]:
    """The growth of the rounding error by the name of a convolution's result, declared by the names of what computes it."""
    found: dict[str, float] = {}
    for name in names:
        if match := _DECLARATION.match(name):
            stem, *sizes = match.groups()
            pairs = zip(map(int, sizes[::2]), map(int, sizes[1::2]), strict=True)
            tiled = (minimal_filtering(outputs, taps) for outputs, taps in pairs)
            found[stem] = prod(each.error_growth for each in tiled if each is not None)
    return found


class WinogradRewriter:
    """Replaces one convolution by its Winograd form."""

    def __init__(self, graph: Graph, constants: Constants, site: Site, tiles: tuple[Tiles, Tiles]) -> None:
        """Rewrite `site` in `tiles` along rows and columns."""
        self._graph = graph
        self._constants = constants
        self._site = site
        self._tiles = tiles
        self._phase_shape: Shape = (
            site.batch,
            site.filters,
            tiles[0].product_axis.output,
            tiles[1].product_axis.output,
        )

    def run(self) -> None:
        """Replace the convolution."""
        is_final = self._site.residual is None
        phases = self._outputs(self._tiles[0], self._columns, None, is_final)
        result = self._interleaved(phases)
        if not is_final:
            result = self._with_residual(result)
        self._graph.replace_value(self._site.y, result)
        if not self._graph.is_used(self._site.filter):
            self._graph.remove_value(self._site.filter)

    def _columns(self, row: int, addends: Arrays | None, is_final: bool) -> Arrays:
        """Component `row` along the rows: one array for every output of a tile of columns."""

        def product(column: int, added: Arrays | None, is_last: bool) -> Arrays:
            return [self._product((row, column), added[0] if added else None, is_last)]

        separate = [[each] for each in addends] if addends is not None else None
        return [each for (each,) in self._outputs(self._tiles[1], product, separate, is_final)]

    def _outputs(
        self, tiles: Tiles, produce: ComponentFunction, addends: list[Arrays] | None, is_final: bool
    ) -> list[Arrays]:
        """The output transform A^T: every output of a tile from the components along an axis, plus its addends."""
        algorithm = tiles.algorithm
        if algorithm is None:
            return [produce(0, addends[0] if addends is not None else None, is_final)]
        halves: list[tuple[Arrays, Arrays]] = []
        for pair in range(len(algorithm.pairs)):
            plus, minus = (produce(index + 2 * pair, None, False) for index in (1, 2))
            halves.append((self._each("Add", plus, minus), self._each("Sub", plus, minus)))
        found = []
        for output in range(algorithm.outputs):
            edge_component = {0: 0, algorithm.outputs - 1: algorithm.num_components - 1}.get(output)
            terms = [(point**output, half[output % 2]) for point, half in zip(algorithm.pairs, halves, strict=True)]
            total = self._sum(
                terms, addends[output] if addends is not None else None, is_final and edge_component is None
            )
            found.append(total if edge_component is None else produce(edge_component, total, is_final))
        return found

    def _sum(self, terms: Sequence[tuple[Fraction, Arrays]], addends: Arrays | None, is_final: bool) -> Arrays:
        """The sum of the terms times their factors, the first of which is 1, and of the addends, activated if `is_final`."""
        total = terms[0][1] if addends is None else self._each("Add", terms[0][1], addends)
        for index, (factor, term) in enumerate(terms[1:], 2):
            is_last = is_final and index == len(terms)
            if factor == 1 and not is_last:
                total = self._each("Add", total, term)
            else:
                total = [self._add_multiple(a, b, factor, is_last) for a, b in zip(total, term, strict=True)]
        return total

    # --- single ops ----------------------------------------------------------------------------------------------

    def _product(self, component: tuple[int, int], added: Value | None, is_final: bool) -> Value:
        """The convolution of one component."""
        site = self._site
        ones = tuple(int(each.algorithm is not None) for each in self._tiles)
        bias = site.bias if component == ones else None  # every output has the point 1 with factor 1
        rows, columns = (each.product_axis for each in self._tiles)
        return self._conv(
            (self._transformed(component), self._constants.filter(site, self._tiles, component), bias, added),
            self._phase_shape,
            is_final,
            group=1,
            kernel_shape=(rows.kernel, columns.kernel),
            pads=(rows.front, columns.front, rows.back, columns.back),
            strides=(rows.stride, columns.stride),
            dilations=(rows.dilation, columns.dilation),
        )

    def _transformed(self, component: tuple[int, int]) -> Value:
        """The transformed input of one component."""
        site = self._site
        (rows, top, bottom), (columns, left, right) = (
            tiles.taps(index) for tiles, index in zip(self._tiles, component, strict=True)
        )
        coefficients = np.outer(rows, columns)
        return self._conv(
            (site.x, self._constants.depthwise(site.channels, coefficients), None, None),
            (site.batch, site.channels, *(each.product_axis.input for each in self._tiles)),
            False,
            group=site.channels,
            kernel_shape=coefficients.shape,
            pads=(top, left, bottom, right),
            strides=(self._tiles[0].outputs, self._tiles[1].outputs),
            dilations=(1, 1),
        )

    def _add_multiple(self, total: Value, term: Value, factor: Fraction | int, is_final: bool) -> Value:
        """total + factor * term."""
        assert total.shape is not None
        filter = self._constants.depthwise(self._site.filters, np.full((1, 1), float(factor)))
        ones = {"strides": (1, 1), "dilations": (1, 1), "kernel_shape": (1, 1), "pads": (0, 0, 0, 0)}
        return self._conv((term, filter, None, total), total.shape, is_final, group=self._site.filters, **ones)

    def _conv(self, inputs: Sequence[Value | None], shape: Shape, is_final: bool, **fields: Attribute) -> Value:
        operands = list(inputs)
        while operands[-1] is None:
            operands.pop()
        return self._op("Conv", operands, shape, DOMAIN, **fields, **(self._site.activation if is_final else {}))

    def _each(self, kind: str, first: Arrays, second: Arrays) -> Arrays:
        return [self._op(kind, (a, b), a.shape) for a, b in zip(first, second, strict=True)]

    def _op(
        self, kind: str, inputs: Sequence[Value | None], shape: Shape | None, domain: str = "", **fields: Attribute
    ) -> Value:
        assert shape is not None
        sizes = (f"{each.outputs}of{each.axis.kernel if each.algorithm else 1}" for each in self._tiles)
        stem = f"{self._site.y.name}/winograd/{'x'.join(sizes)}/{kind}"
        full = f"{domain}::{kind}" if domain else kind
        return self._graph.new_result(full, tuple(inputs), float32_type(shape), stem, self._site.op, attributes=fields)

    # --- interleaving the tiles ----------------------------------------------------------------------------------

    def _interleaved(self, phases: list[Arrays]) -> Value:
        """The array of y from one array for every output of a tile."""
        site, block, (rows, columns) = self._site, self._constants.block, self._tiles
        images = site.batch * (site.filters // block)
        tiles = images * rows.product_axis.output
        lines = [self._interleaved_along(phase, tiles, columns, block) for phase in phases]
        whole = self._interleaved_along(lines, images, rows, columns.axis.output * block)
        return self._reshape(whole, (site.batch, site.filters, rows.axis.output, columns.axis.output))

    def _interleaved_along(self, pieces: Arrays, outer: Dim, tiles: Tiles, inner: int) -> Value:
        """(outer, tiles, inner), one for every output of a tile  -->  (outer, outputs of all tiles, inner)."""
        if tiles.algorithm is None:
            return pieces[0]
        all_tiles = outer * tiles.count
        views = [self._reshape(piece, (all_tiles, 1, inner)) for piece in pieces]
        whole = self._op("Concat", views, (all_tiles, len(pieces), inner), axis=1)
        if tiles.axis.output == tiles.count * tiles.outputs:
            return whole
        return self._prefix(self._reshape(whole, (outer, tiles.count * tiles.outputs, inner)), tiles.axis.output)

    def _prefix(self, x: Value, count: int) -> Value:
        """The first `count` elements along axis 1."""
        assert x.shape is not None
        shape = (x.shape[0], count, x.shape[2])
        if self._graph.opsets[""] < 10:
            return self._op("Slice", (x,), shape, starts=(0,), ends=(count,), axes=(1,))
        bounds = [self._constants.integers(number) for number in (0, count, 1)]
        return self._op("Slice", (x, *bounds), shape)

    def _reshape(self, x: Value, shape: Shape) -> Value:
        extents = [dim if isinstance(dim, int) else -1 for dim in shape]
        return self._op("Reshape", (x, self._constants.integers(*extents)), shape)

    def _with_residual(self, result: Value) -> Value:
        residual = self._site.residual
        assert residual is not None
        if not self._site.activation:
            return self._op("Add", (result, residual), result.shape)
        return self._add_multiple(residual, result, 1, True)
