"""Samples for the laws of layout rules: onnx's own node tests and those made by hand, in several variants."""

import importlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
from onnx import numpy_helper
from test_rules_handmade import Sample, handmade

from layoutopt.ops import rules
from layoutopt.ops.base import OLDEST_OPSET

_SLOW = ("MaxPool", "AveragePool", "LpPool")  # whose node tests compute for seconds when they are imported
_NEWEST = min(onnx.defs.onnx_opset_version(), 25)  # what every supported onnxruntime loads


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """Which module has onnx's cases of an op type."""
    found = {}
    for file in Path(node_cases.__file__).parent.glob("*.py"):
        for kind in re.findall(r"^class (\w+)\(Base\)", file.read_text(), re.MULTILINE):
            found[kind] = file.stem
    return found


def node_tests(kind: str) -> Iterator[Sample]:
    """Onnx's backend tests of one op type, at an opset that onnxruntime knows."""
    if kind not in _modules():
        return
    node_cases._TargetOpType = kind  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, where a case divides by zero
        importlib.import_module(f"{node_cases.__name__}.{_modules()[kind]}")
    for case in node_cases._NodeTestCases:
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type != kind or graph.node[0].domain:
            continue
        if not all(value.type.HasField("tensor_type") for value in (*graph.input, *graph.output)):
            continue
        if not all(isinstance(array, np.ndarray | np.generic) for array in case.data_sets[0][0]):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for opset in model.opset_import:
            opset.version = min(opset.version, _NEWEST) if opset.version >= OLDEST_OPSET else _NEWEST
        model.ir_version = min(model.ir_version, 10)
        if not _is_valid(model):
            continue
        feed = {info.name: np.asarray(array) for info, array in zip(graph.input, case.data_sets[0][0], strict=True)}
        yield Sample(case.name, model, (feed,))


def _is_valid(model: onnx.ModelProto) -> bool:
    """Whether the model is one at this opset too."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True


def frozen(sample: Sample) -> Sample | None:
    """The sample with all inputs but the first as initializers, as they are in practice."""
    first, *rest = sample.model.graph.input
    if not rest:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    del model.graph.input[1:]
    (feed,) = sample.feeds
    model.graph.initializer.extend(numpy_helper.from_array(feed[info.name], info.name) for info in rest)
    return replace(sample, name=f"{sample.name} frozen", model=model, feeds=({first.name: feed[first.name]},))


def dynamic(sample: Sample) -> Sample | None:
    """The sample with symbolic axes 0, 2 and 3, and inputs of two sizes."""
    (feed,) = sample.feeds
    names = {0: "N", 2: "H", 3: "W"}
    lead = feed[sample.model.graph.input[0].name].shape
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    larger = dict(feed)
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        if len(dims) != len(lead) or not dims or (len(dims) == 1 and info is not model.graph.input[0]):
            continue
        for axis, name in names.items():
            if axis < len(lead) and dims[axis].dim_value == lead[axis] != 1:
                dims[axis].dim_param = name
                if axis != 3:
                    larger[info.name] = np.concatenate([larger[info.name]] * 2, axis)
    for info in model.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return replace(sample, name=f"{sample.name} dynamic", model=model, feeds=(feed, larger))


def samples(kind: str, *, thorough: bool) -> Iterator[Sample]:
    """Every sample of an op type: with computed operands, with constant ones, with symbolic extents."""
    tests = node_tests(kind) if thorough or kind not in _SLOW else ()
    for sample in (*handmade().get(kind, ()), *tests):
        if not sample.model.graph.input:
            continue
        constant = frozen(sample)
        yield sample
        if constant is not None:
            yield constant
        for each in (sample, constant):
            if each is not None and (variant := dynamic(each)) is not None:
                yield variant


def test_every_rule_has_samples() -> None:
    assert not [kind for kind in rules() if kind not in _modules() and kind not in handmade()]
