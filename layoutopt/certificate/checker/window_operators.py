"""Convolutions and poolings as terms: the pads of `auto_pad` are numbers, a bias is a sum."""

from typing import Any

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.normal import make, reshaped
from layoutopt.certificate.checker.operators import Call, meaning
from layoutopt.certificate.checker.terms import Extent, Term, UnprovableError


@meaning("Conv")
def _conv(call: Call) -> Term:
    return convolution(call[0], call[1], call.optional(2), call.attributes)


def convolution(x: Term, filters: Term, bias: Term | None, attributes: dict[str, Any]) -> Term:
    """A convolution without bias, and the bias as a sum."""
    window: dict[str, Any] = {**windows(x, filters.shape[2:], attributes)}
    group = attributes.get("group", 1)
    is_fitting = group > 0 and maps.volume([filters.shape[1], group]) == x.shape[1]
    if not is_fitting or maps.quotient(filters.shape[0], group) is None:
        raise UnprovableError(f"filters of {filters.shape} in {group} groups do not fit {x.shape}")
    y = make("Conv", x, filters, group=group, **{name: window[name] for name in ("strides", "pads", "dilations")})
    if bias is None:
        return y
    return make("Add", y, reshaped(bias, (1, *bias.shape, *(1,) * (len(x.shape) - 2))))


def windows(x: Term, kernel: tuple[Extent, ...], attributes: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Kernel shape, strides, dilations and pads, with the pads of `auto_pad` as numbers."""
    rank = len(kernel)
    extents = [int(extent) for extent in kernel if isinstance(extent, int)]
    if len(extents) < rank or tuple(attributes.get("kernel_shape") or kernel) != kernel:
        raise UnprovableError("the kernel shape is not that of the filters")
    strides = tuple(attributes.get("strides") or (1,) * rank)
    dilations = tuple(attributes.get("dilations") or (1,) * rank)
    pads = tuple(attributes.get("pads") or (0,) * 2 * rank)
    mode = attributes.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * 2 * rank
    elif mode != "NOTSET":
        before, after = [], []
        for size, extent, stride, dilation in zip(x.shape[2:], extents, strides, dilations, strict=True):
            if not isinstance(size, int):
                raise UnprovableError("auto_pad of a symbolic extent")
            total = max((-(-size // stride) - 1) * stride + dilation * (extent - 1) + 1 - size, 0)
            before.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
            after.append(total - before[-1])
        pads = (*before, *after)
    return {"kernel_shape": tuple(extents), "strides": strides, "dilations": dilations, "pads": pads}


@meaning("MaxPool", "AveragePool")
def pooling(call: Call) -> Term:
    """A pooling with pads as numbers."""
    if call.outputs > 1 or (call.op == "AveragePool" and call.attributes.get("ceil_mode")):
        raise UnprovableError(f"a {call.op} with indices, or with windows beyond the pads")
    window: dict[str, Any] = {**windows(call[0], tuple(call.attributes["kernel_shape"]), call.attributes)}
    extra = {name: 1 for name in ("ceil_mode", "count_include_pad") if call.attributes.get(name)}
    dilations = window.pop("dilations")
    return make(call.op, call[0], **window, **extra, **({"dilations": dilations} if set(dilations) != {1} else {}))


@meaning("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: Call) -> Term:
    op = "ReduceMean" if call.op == "GlobalAveragePool" else "ReduceMax"
    return make(op, call[0], axes=tuple(range(2, len(call[0].shape))))
