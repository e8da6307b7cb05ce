"""Proofs of the lemmas on positions: pads, strides, phases, repeated heads, resampling. Positions and extents are integers."""

from collections.abc import Iterator

import z3
from prover import Obligation, Real, family, induction, integers, proof, reals

_INT, _REAL = z3.IntSort(), z3.RealSort()


def _padded(x: z3.FuncDeclRef, extent: Real, front: Real, position: Real) -> Real:
    """The element at a position of x with zeros in front of it and behind it."""
    return z3.If(z3.And(front <= position, position < front + extent), x(position - front), z3.RealVal(0))


@proof("pad-into-convolution")
def pad_into_convolution(k: int) -> Iterator[Obligation]:
    """Zeros around zeros around x are zeros around x: front pads are added, and so are those behind."""
    x, middle = z3.Function("x", _INT, _REAL), z3.Function("middle", _INT, _REAL)
    extent, front, behind, own, position = integers("extent front behind own position")
    outer = _padded(middle, front + extent + behind, own, position)
    inner = middle(position - own) == _padded(x, extent, front, position - own)
    known = [extent > 0, front >= 0, behind >= 0, own >= 0, inner]
    yield Obligation("pads are added", outer == _padded(x, extent, k * front + own, position), known)


@proof("conv-of-conv")
def conv_of_conv(k: int) -> Iterator[Obligation]:
    """Two convolutions, the second without pads or the first of one tap without pads, are one convolution.

    Along an axis: z[r] = sum over i of w[i] * x[s * r + d * i - c], and y[p] = sum over j of v[j] * z[q * p + e * j - f].
    """
    yield from _composed_positions(k)
    yield from _composed_rows(k)
    yield from _one_tap_keeps_zeros(k)
    yield from _products_of_taps(k)
    yield from _collected_taps()


def _composed_positions(k: int) -> Iterator[Obligation]:
    """Stride q * s, tap s * e * j + d * i, pad s * f + c."""
    p, q, e, j, f, s, d, i, c = integers("p q e j f s d i c")
    position = s * (q * p + e * j - f) + d * i - c
    yield Obligation("positions", position == k * (s * q) * p + (s * e * j + d * i) - (s * f + c))


def _composed_rows(k: int) -> Iterator[Obligation]:
    """The number of rows is (extent + slack) div stride + 1, where the slack is the pads minus the taps.

    Quotients are given by their definition: extent + first = s * u + r, and u + 1 + second = q * v + w.
    """
    extent, s, q, first, second, u, r, v, w = integers("extent s q first second u r v w")
    inner = [s > 0, extent + first == s * u + r, r >= 0, r < s]
    outer = [q > 0, u + 1 + second == q * v + w, w >= 0, w < q]
    whole = extent + (s * (second + 1) + k * first)
    yield Obligation("quotient of the whole", whole == (s * q) * v + (s * w + r), [*inner, *outer])
    positive = [s * w >= 0, s * (q - w - 1) >= 0]  # products of numbers that are not negative
    yield Obligation("rest of the whole", z3.And(s * w + r >= 0, s * w + r < s * q), [*inner, *outer, *positive])


def _one_tap_keeps_zeros(k: int) -> Iterator[Obligation]:
    """With one tap, stride 1 and no pads, the zeros around z are the first convolution of the zeros around x."""
    x, z = z3.Function("x", _INT, _REAL), z3.Function("z", _INT, _REAL)
    extent, front, position = integers("extent front position")
    (weight,) = reals("weight")
    given = z(position - front) == weight * x(position - front)
    claim = _padded(z, extent, front, position) == k * weight * _padded(x, extent, front, position)
    yield Obligation("pads around one tap", claim, [extent > 0, front >= 0, given])


def _products_of_taps(k: int) -> Iterator[Obligation]:
    """v[j] * (sum over i of w[i] * x[i] + a) = sum over i of (v[j] * w[i]) * x[i] + v[j] * a, and so for the sum over j."""
    w, x = family("w"), family("x")
    c, a, one, other, left, right = reals("c a one other left right")
    yield from induction(
        "one tap of the second",
        lambda total: c * total("w x", lambda i: w(i) * x(i)) == total("(c w) x", lambda i: (k * c * w(i)) * x(i)),
    )
    known = [left == right, c * one == other]
    yield Obligation("one more tap of the second", left + c * (one + a) == right + (other + k * c * a), known, True)


def _collected_taps() -> Iterator[Obligation]:
    """Taps at equal positions are one tap: a product c * x[at] changes the filter at one position."""
    x, total = z3.Function("x", _INT, _REAL), z3.Function("total", _INT, _REAL)
    n, at = integers("n at")
    c, products, taps, longer = reals("c products taps longer")

    def claim(count: Real) -> Real:
        return total(count) == z3.If(z3.And(at >= 0, at < count), c * x(at), 0)

    more = total(n + 1) == total(n) + z3.If(n == at, c, z3.RealVal(0)) * x(n)
    yield Obligation("one position: no taps", claim(z3.IntVal(0)), [total(0) == 0], is_step=True)
    yield Obligation("one position: one more tap", claim(n + 1), [n >= 0, claim(n), more], is_step=True)
    w, v = family("w"), family("v")
    yield from induction(
        "a filter plus a tap",
        lambda total: (
            total("(w + v) x", lambda i: (w(i) + v(i)) * family("x")(i))
            == total("w x", lambda i: w(i) * family("x")(i)) + total("v x", lambda i: v(i) * family("x")(i))
        ),
    )
    known = [products == taps, longer == taps + c * x(at)]
    yield Obligation("one more product", products + c * x(at) == longer, known, is_step=True)


@proof("fewer-rows")
def fewer_rows(k: int) -> Iterator[Obligation]:
    """The first rows do not read the last pads: with slack (rows - 1) * stride - extent there are that many rows."""
    rows, more, stride, extent, front, tap, row = integers("rows more stride extent front tap row")
    known = [rows > 0, more >= 0, stride > 0, extent > 0, front >= 0]
    padded = extent + ((rows - 1) * stride - k * extent)
    yield Obligation("number of rows", padded == (rows - 1) * stride, known)
    yield Obligation("the same elements", stride * row + tap - front == stride * row + tap - k * front, known)


@proof("rows-as-phases")
def rows_as_phases(k: int) -> Iterator[Obligation]:
    """Rows j, j + m, j + 2 m, .. of a convolution are a convolution with stride m, whose filter is shifted by j.

    Row r is the row r div m of phase r mod m. Phase j reads x[m * t + u - c[j]] for tap u; that is the tap u - j + c of row
    m * t + j of the whole, which reads x[m * t + j + tap - c].
    """
    m, t, j, u, own, c, r = integers("m t j u own c r")
    tap = u - j + c - own
    yield Obligation("tap of a row", m * t + u - own == (m * t + k * j) + tap - c)
    quotient, rest = integers("quotient rest")
    division = [m > 0, r == m * quotient + rest, rest >= 0, rest < m]
    claim = z3.And(r == m * t + j, j >= 0, j < m) == z3.And(t == quotient, j == rest)
    yield Obligation("one phase of every row", claim, division)


@proof("heads-as-rows")
def heads_as_rows(k: int) -> Iterator[Obligation]:
    """Rows of all heads of a group, one below the other, times the keys of the group: row s of head h is one of them.

    Head h belongs to group h div R. In (B, G * R, S, D) and in (B, G, R * S, D), row s of head h has the same position.
    """
    group, times, head, rows, row = integers("group times head rows row")
    whole = group * times + head  # head of the group, as one of all heads
    known = [head >= 0, head < times, row >= 0, row < rows, group >= 0]
    same = (whole * rows + row) == group * (times * rows) + (k * head * rows + row)
    yield Obligation("positions", same, known)
    quotient, rest = integers("quotient rest")
    division = [whole == times * quotient + rest, rest >= 0, rest < times]
    yield Obligation("group of a head", quotient == group, [*known, *division])


@proof("wider-rows")
def wider_rows(k: int) -> Iterator[Obligation]:
    """Number c of C, repeated for W columns, is that of channel c of every column: (w * C + c) mod C = c."""
    width, column, channel, quotient, rest = integers("C w c quotient rest")
    known = [channel >= 0, channel < width, column >= 0]
    division = [k * (column * width) + channel == width * quotient + rest, rest >= 0, rest < width]
    yield Obligation("repeated numbers", z3.And(rest == channel, quotient == column), [*known, *division])


@proof("resize-of-same-extent")
def resize_of_same_extent(k: int) -> Iterator[Obligation]:
    """A Resize to the extent that an axis has reads every element at its own position, in all coordinate modes."""
    i, n = reals("i n")
    scale = z3.RealVal(k)
    known = [n > 1, i >= 0, i <= n - 1]
    half = z3.RealVal(1) / 2
    yield Obligation("half_pixel and pytorch_half_pixel", (i + half) / scale - half == i, known)
    yield Obligation("asymmetric", i / scale == i, known)
    yield Obligation("align_corners", i * (n - 1) / (scale * n - 1) == i, known)
    middle = n / 2 * (1 - (n * scale) / (n * scale))
    yield Obligation("half_pixel_symmetric", middle + (i + half) / scale - half == i, known)
