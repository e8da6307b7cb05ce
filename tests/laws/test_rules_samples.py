"""Samples for the laws of layout rules: onnx's own node tests and those made by hand, in several variants.

Every sample is tried at every opset at which its op type changed, from 7 on: where it is a model there too, the rule has to
be right about it, whatever has changed.
"""

import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
from msgspec.structs import replace
from onnx import numpy_helper
from test_rules_handmade import Sample, handmade

from layoutopt.ops import rules
from layoutopt.ops.base import OLDEST_OPSET
from layoutopt.record import Record

importlib.import_module("test_rules_handmade_forms")  # registers its families of samples

_SLOW = ("MaxPool", "AveragePool", "LpPool")  # whose node tests compute for seconds when they are imported
_NEWEST = min(onnx.defs.onnx_opset_version(), 25)  # what every supported onnxruntime loads


class Draft(Record, eq=False):
    """A sample that is made on demand; it may turn out not to be a valid model."""

    name: str
    since: int  # the opset, from 7 on, at which the op became what it is in the sample; 1 of others than onnx's own
    is_moved: bool  # made for another opset
    make: Callable[[], Sample | None]


def is_standard(kind: str) -> bool:
    """Whether onnx's standard domain has the op type."""
    return "::" not in kind and bool(onnx.defs.has(kind))


@cache
def versions(kind: str) -> list[int]:
    """The opsets, from 7 on, at which an op type changed; 1 for other domains than onnx's own."""
    if not is_standard(kind):
        return [1]
    schemas = [each for each in onnx.defs.get_all_schemas_with_history() if each.name == kind and not each.domain]
    since = sorted(each.since_version for each in schemas if not each.deprecated)
    older = [version for version in since if version <= OLDEST_OPSET]
    return [*([OLDEST_OPSET] if older else []), *(version for version in since if version > OLDEST_OPSET)]


def written(kind: str) -> list[Sample]:
    """The samples of an op type that are made by hand."""
    return handmade().get(kind, [])


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """The modules of onnx's test cases, by op type."""
    found = {}
    for file in Path(node_cases.__file__).parent.glob("*.py"):
        for kind in re.findall(r"^class (\w+)\(Base\)", file.read_text(), re.MULTILINE):
            found[kind] = file.stem
    return found


def node_tests(kind: str) -> Iterator[Sample]:
    """Onnx's backend tests of one op type, at an opset that onnxruntime supports."""
    if kind not in _modules():
        return
    node_cases._TargetOpType = kind  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, where a case divides by zero
        importlib.import_module(f"{node_cases.__name__}.{_modules()[kind]}")
    node_cases._TargetOpType = None  # tests/backend imports further modules in the same process
    for case in node_cases._NodeTestCases:
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type != kind or graph.node[0].domain:
            continue
        if not all(value.type.HasField("tensor_type") for value in (*graph.input, *graph.output)):
            continue
        if not all(isinstance(array, np.ndarray | np.generic) for array in case.data_sets[0][0]):
            continue
        model = deepcopy(case.model)
        for opset in model.opset_import:
            opset.version = min(opset.version, _NEWEST) if opset.version >= OLDEST_OPSET else _NEWEST
        model.ir_version = min(model.ir_version, 10)
        if not is_valid(model):
            continue
        feed = {info.name: np.asarray(array) for info, array in zip(graph.input, case.data_sets[0][0], strict=True)}
        yield Sample(case.name, model, (feed,))


def is_valid(model: onnx.ModelProto) -> bool:
    """Whether the model is one at this opset too."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError):
        return False
    return True


def frozen(sample: Sample) -> Sample | None:
    """The sample with all inputs but the first as initializers, as they are in practice."""
    first, *rest = sample.model.graph.input
    if not rest:
        return None
    model = deepcopy(sample.model)
    del model.graph.input[1:]
    (feed,) = sample.feeds
    model.graph.initializer.extend(numpy_helper.from_array(feed[info.name], info.name) for info in rest)
    return replace(sample, name=f"{sample.name} frozen", model=model, feeds=({first.name: feed[first.name]},))


def dynamic(sample: Sample) -> Sample | None:
    """The sample with symbolic axes 0, 2 and 3, and inputs of two sizes."""
    (feed,) = sample.feeds
    names = {0: "N", 2: "H", 3: "W"}
    lead = feed[sample.model.graph.input[0].name].shape
    model = deepcopy(sample.model)
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


def moved(sample: Sample, opset: int) -> Sample | None:
    """The sample at another opset; None if it is no model there."""
    model = deepcopy(sample.model)
    for each in model.opset_import:
        if not each.domain:
            each.version = opset
    return replace(sample, name=f"{sample.name} at {opset}", model=model) if is_valid(model) else None


def drafts(kind: str, *, is_thorough: bool) -> Iterator[Draft]:
    """Every sample of an op type: at every opset, with computed operands, with constant ones, with symbolic extents."""
    tests = node_tests(kind) if is_thorough or kind not in _SLOW else ()
    for sample in (*written(kind), *tests):
        own = _since(kind, sample.model)
        if not sample.model.graph.input or own is None:
            continue
        for version in versions(kind):
            is_moved = version != own
            for variants in ((), (frozen,), (dynamic,), (frozen, dynamic)):
                name = " ".join(
                    [sample.name, *([f"at {version}"] if is_moved else []), *(each.__name__ for each in variants)]
                )
                make = partial(_variant, sample, version if is_moved else None, variants)
                yield Draft(name, version, is_moved, make)


def _since(kind: str, model: onnx.ModelProto) -> int | None:
    """The opset since which the op of a model is unchanged; None if the rules do not support it."""
    (opset,) = (each.version for each in model.opset_import if not each.domain)
    if not is_standard(kind):
        return 1
    earlier = [version for version in versions(kind) if version <= opset]
    return max(earlier, default=versions(kind)[0]) if opset >= OLDEST_OPSET else None


def _variant(
    sample: Sample, opset: int | None, variants: tuple[Callable[[Sample], Sample | None], ...]
) -> Sample | None:
    changed = sample if opset is None else moved(sample, opset)
    for variant in variants:
        changed = changed and variant(changed)
    return changed


def samples(kind: str, *, is_thorough: bool) -> Iterator[Sample]:
    """Every sample of an op type at the opset that it was made for."""
    made = (draft.make() for draft in drafts(kind, is_thorough=is_thorough) if not draft.is_moved)
    return (sample for sample in made if sample is not None)


def test_every_rule_has_samples() -> None:
    kinds = [kind for kind, rule in rules().items() if rule.formats != "canonical"]
    assert not [kind for kind in kinds if kind not in _modules() and not written(kind)]
