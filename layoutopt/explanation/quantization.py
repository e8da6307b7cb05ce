"""The comparison of a quantised model with the same model in float32, both as onnxruntime runs them by itself."""

import os

from layoutopt import inference, onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import Lifted
from layoutopt.driver.measuring import measured_rows, measured_sizes
from layoutopt.driver.prices import VARIABLE
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.ops import flags, is_dequantizer, is_quantizer
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.ops.qdq import define_dequantizer, has_definition
from layoutopt.passes import RemoveDead
from layoutopt.passes.base import PassContext
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
    if not job.dialect.is_native or is_large or not _remove_quantization(graph, job.context):
        return ""
    if not job.options.calibrate or os.environ.get(VARIABLE):
        return "the model is quantised: --calibrate measures whether it is faster in float32"
    job.progress("measuring the model in float32")
    try:
        models = [Runnable(onnx_io.to_bytes(each)) for each in (source, onnx_io.emit(graph))]
        sizes = measured_sizes(lifted.graph, job.context.sizes)
        (first, *_), _ = measured_rows(models, lifted.samples, sizes, job.options.threads, is_paired=True)
    except RUN_OR_MEMORY_ERRORS as error:
        return f"the model cannot be measured in float32: {error_message(error)}"
    verdict = "slower" if first.low > 1 else "faster" if first.high < 1 else "as fast"
    times = f"{seconds(first.seconds_before)} in integers, {seconds(first.seconds_after)} in float32"
    return f"onnxruntime runs the model {verdict} than without quantisation: {times}"


def _remove_quantization(graph: Graph, context: PassContext) -> bool:
    """Replace dequantised values by those in front of the QuantizeLinear; returns whether all ops are in float32 then.

    Values that are both dequantised and outputs stay.
    """
    found = False
    for op in graph.ops:
        if not is_dequantizer(op) or graph.is_output(op.y) or op.y.dtype is not DType.FLOAT32:
            continue
        quantizer = graph.producer(op.x)
        if quantizer is not None and is_quantizer(quantizer):
            graph.replace_uses(op.y, quantizer.x)
            found = True
        elif has_definition(op):
            builder = rewriting(graph, op, "dequantized")
            define_dequantizer(op, builder)
            replace_op(graph, op, builder)
    RemoveDead().run(graph, context)
    ops = [op for each in graph.regions() for op in each.ops if flags(op).is_quantized and not is_quantizer(op)]
    return found and all(graph.is_output(op.y) for op in ops)
