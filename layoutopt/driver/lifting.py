"""From a model as it was handed in to the graph that passes run on."""

import onnx
import onnx_ir

from layoutopt import onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.driver.job import Job
from layoutopt.errors import PinError
from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.deferred import stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ops import rules
from layoutopt.passes.base import Note


def read(job: Job) -> onnx_ir.Model:
    """The model, parsed, repaired and checked.

    Raises:
        ModelError: it cannot be read, or is not valid.
    """
    given, strict = job.given, job.options.strict
    if isinstance(given, onnx_ir.Model):
        return given
    if isinstance(given, onnx.ModelProto):
        return onnx_io.from_message(given, strict=strict)
    return onnx_io.read(given, strict=strict)


def lift_as_it_is(job: Job, model: onnx_ir.Model) -> Graph:
    """The graph of a model that stays unchanged, with the functions of an earlier run inlined."""
    return onnx_io.lift(onnx_io.inline(model, DOMAIN), strict=job.options.strict)


def lift(job: Job, model: onnx_ir.Model) -> Graph:
    """The graph of a model, functions without a layout rule inlined.

    Raises:
        PinError: there is no tensor of a pinned name.
    """
    inlined = onnx_io.inline_functions(onnx_io.inline(model, DOMAIN), lambda kind: kind in rules())
    job.context.notes += [Note("inline", name, reason) for name, reason in inlined.kept]
    graph = onnx_io.lift(inlined.model, strict=job.options.strict)
    job.context.growth = Growth(job.stamp.max_growth, stored_bytes(graph.nest()))
    if missing := next((name for name in job.context.pins if graph.find(name) is None), None):
        raise PinError("there is no such tensor to pin", where=missing, hint="name a tensor of the model")
    return graph


__all__ = ["lift", "lift_as_it_is", "read"]
