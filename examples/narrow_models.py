"""Variants of networks: in float16, quantised by onnxruntime, and optimised and saved by onnxruntime."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
_FLOAT32_INPUTS = {"Resize": (2,), "Upsample": (1,)}  # inputs that are float32 for every element type of the image


def to_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float16 instead of float32."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    graph = half.graph
    kept = {
        node.input[index]
        for node in graph.node
        for index in _FLOAT32_INPUTS.get(node.op_type, ())
        if index < len(node.input)
    }
    for tensor in graph.initializer:
        if tensor.data_type == FLOAT and tensor.name not in kept:
            tensor.CopyFrom(_narrow(tensor))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == FLOAT and not kept.intersection(node.output):
                attribute.t.CopyFrom(_narrow(attribute.t))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = HALF
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == FLOAT:
            info.type.tensor_type.elem_type = HALF
    del graph.value_info[:]
    onnx.checker.check_model(half, full_check=True)
    return half


def _narrow(tensor: TensorProto) -> TensorProto:
    limit = float(np.finfo(np.float16).max)
    array = np.clip(numpy_helper.to_array(tensor), -limit, limit).astype(np.float16)
    return numpy_helper.from_array(array, tensor.name)


def rescaled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with filters rescaled to keep the magnitude of signals, so that rounded values still depend on the inputs."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Conv" or node.input[1] not in tensors:
            continue
        weight = numpy_helper.to_array(tensors[node.input[1]])
        gain = np.sqrt(2 / np.prod(weight.shape[1:])) / max(float(weight.std()), 1e-12)
        tensors[node.input[1]].CopyFrom(numpy_helper.from_array((weight * gain).astype(np.float32), node.input[1]))
        if len(node.input) > 2 and node.input[2] in tensors:
            bias = numpy_helper.to_array(tensors[node.input[2]])
            small = 0.1 * bias / max(float(np.abs(bias).max()), 1e-12)
            tensors[node.input[2]].CopyFrom(numpy_helper.from_array(small.astype(np.float32), node.input[2]))
    return model


def _noise(generator: np.random.Generator, given: onnxruntime.NodeArg) -> np.ndarray:
    """Small random numbers, or small indices; symbolic dimensions are 1."""
    shape = [dim if isinstance(dim, int) else 1 for dim in given.shape]
    if given.type == "tensor(int64)":
        return generator.integers(0, 2, shape)
    return generator.normal(size=shape).astype(np.float32)


class _Noise(CalibrationDataReader):
    """Calibration data: random inputs."""

    def __init__(self, path: Path) -> None:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        generator = np.random.default_rng(7)
        self._feeds: Iterator[Mapping[str, np.ndarray]] = iter(
            [{each.name: _noise(generator, each) for each in session.get_inputs()} for _ in range(2)]
        )

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._feeds, None)


def quantized(path: Path, *, per_channel: bool, folder: Path, **options: Any) -> Path:
    """The model in QDQ form, quantised by onnxruntime; `options` are further ones of its `quantize_static`."""
    target = folder / f"{path.stem}_{'per_channel' if per_channel else 'per_tensor'}.onnx"
    source = folder / f"{path.stem}_lively.onnx"
    onnx.save(rescaled(onnx.load(path)), source)
    quantize_static(
        source,
        target,
        _Noise(source),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8 if per_channel else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        **options,
    )
    return target


def saved(path: Path, level: str, folder: Path) -> Path:
    """The model as onnxruntime saves it at an optimisation level."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    target = folder / f"{path.stem}_{level}.onnx"
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return target
