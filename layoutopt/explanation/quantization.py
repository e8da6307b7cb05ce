"""The comparison of a quantised model with the same model in float32, both as onnxruntime runs them by itself."""

import os

import numpy as np

from layoutopt import inference, onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted
from layoutopt.driver.measuring import measured_rows, measured_sizes
from layoutopt.driver.prices import VARIABLE
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.ops.qdq import SCALE, ZERO_POINT, is_dequantizer, is_quantizer
from layoutopt.passes import RemoveDead
from layoutopt.report.units import seconds
from layoutopt.runtime.errors import RUN_OR_MEMORY_ERRORS, error_message
from layoutopt.verification import MAX_PREPACKED_BYTES, Runnable

_MAX_BYTES = MAX_PREPACKED_BYTES // 4
"""Weights of a quantised model above which its float32 form is not made: it is four times as large."""


def quantization_note(job: Job, lifted: Lifted) -> str:
    """The times of a QDQ model and of the same model in float32; empty for any other model and another runtime.

    Args:
        job: the call; kernels are timed only if its option `calibrate` is set.
        lifted: the model and the generator of its inputs.
    """
    source = lifted.model
    graph = inference.lift(source)
    is_large = weight_bytes(source) > _MAX_BYTES
    if not job.dialect.is_native or is_large or not _remove_quantization(graph):
        return ""
    if not job.options.calibrate or os.environ.get(VARIABLE):
        return "the model is quantised: --calibrate measures whether it is faster in float32"
    job.progress("measuring the model in float32")
    RemoveDead().run(graph, job.context)
    try:
        models = [Runnable(onnx_io.to_bytes(each)) for each in (source, onnx_io.emit(graph))]
        sizes = measured_sizes(lifted.graph, job.context.sizes)
        (first, *_), _ = measured_rows(models, lifted.samples, sizes, job.options.threads, is_paired=True)
    except RUN_OR_MEMORY_ERRORS as error:
        return f"the model cannot be measured in float32: {error_message(error)}"
    verdict = "slower" if first.low > 1 else "faster" if first.high < 1 else "as fast"
    times = f"{seconds(first.seconds_before)} in integers, {seconds(first.seconds_after)} in float32"
    return f"onnxruntime runs the model {verdict} than without quantisation: {times}"


def _remove_quantization(graph: Graph) -> bool:
    """Replace dequantised values by those in front of the QuantizeLinear; returns whether there were any."""
    found = False
    for op in graph.ops:
        if not is_dequantizer(op) or graph.is_output(op.y):
            continue
        quantizer, weights = graph.producer(op.x), _dequantized(op)
        if quantizer is not None and is_quantizer(quantizer):
            graph.replace_uses(op.y, quantizer.x)
            found = True
        elif weights is not None:
            graph.replace_uses(op.y, graph.new_constant(weights, op.y.name))
    return found


def _dequantized(op: Op) -> Array | None:
    """The float32 elements of a DequantizeLinear of constants, per tensor or per axis; None for any other one."""
    integers, scale, zero = (op.constant(index) for index in (0, SCALE, ZERO_POINT))
    if integers is None or scale is None or scale.ndim > 1:
        return None
    axis = op.integer("axis", 1) % max(1, integers.ndim)
    shape = [-1 if index == axis else 1 for index in range(integers.ndim)] if scale.size > 1 else ()
    offset = np.zeros_like(scale) if zero is None else zero
    found: Array = (integers.astype(np.float32) - offset.astype(np.float32).reshape(shape)) * scale.reshape(shape)
    return found.astype(np.float32)
