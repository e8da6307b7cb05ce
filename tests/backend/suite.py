"""ONNX's backend suite: its cases, and the outcome of each in onnxruntime, unchanged and optimised by layoutopt.

A case is a model with inputs and expected outputs. Its outcome is that it passes, fails (wrong numbers, or an error while it
runs), or cannot be loaded. layoutopt may not change the outcome.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
import onnx.backend.test
from fuzz.costs import RandomTarget
from onnx import numpy_helper
from onnx.backend.test.case.node import _NodeTestCases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import layoutopt
from layoutopt.cost_models.registry import HOST, host_target
from layoutopt.dialects import DIALECTS
from layoutopt.dialects.onnxruntime.blocked_passes import NAME
from layoutopt.runtime.session import Session

Configuration: TypeAlias = tuple[str | RandomTarget, str | None]
Outcome: TypeAlias = Literal["passes", "fails", "cannot be loaded"]
DataSet: TypeAlias = tuple[Sequence[Any], Sequence[Any]]

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
_DATA = Path(onnx.backend.test.__file__).parent / "data"
_NEWEST = (26, 13)  # the newest opset and IR version that onnxruntime 1.31 takes
_CHEAP = 0.05  # the largest price of a cast; that of an op is 1
_HALF = 2**-9
"""Two units in the last place of float16, as the suite accepts for bfloat16. Its own tolerance of 1e-3 is one unit, by which
sums in another order differ, such as those of a padded matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A model with inputs and expected outputs."""

    name: str
    kind: str
    model: onnx.ModelProto
    sets: Sequence[DataSet]
    rtol: float
    atol: float
    is_downgraded: bool = False


@cache
def cases(kind: str) -> dict[str, TestCase]:
    """The cases of a kind by name, in alphabetical order."""
    with _quiet():
        found = {case.name: case for case in load_model_tests(kind=kind)}
    return dict(sorted(found.items()))


def node_case(module: str, name: str) -> TestCase:
    """A case of one of ONNX's modules; the cases of all modules would take seconds to create."""
    with _quiet():
        import_module(f"onnx.backend.test.case.node.{module}")
    return next(case for case in _NodeTestCases if case.name == name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress numpy's warnings about infinities, which are expected in several cases."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def load(case: TestCase) -> Case:
    """The model and the arrays of a case."""
    model, sets = case.model, case.data_sets
    if model is None:
        model, sets = _stored(case) if case.model_dir is not None else _light(case)
    assert sets is not None
    arrays = [([_array(each) for each in given], [_array(each) for each in wanted]) for given, wanted in sets]
    return Case(case.name, case.kind, model, arrays, case.rtol, case.atol)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(case: TestCase) -> tuple[onnx.ModelProto, list[DataSet]]:
    """A case that is a folder."""
    folder = Path(case.model_dir or "")
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set*"))
    return model, [
        (_values(each, "input", model.graph.input), _values(each, "output", model.graph.output)) for each in sets
    ]


def _values(folder: Path, kind: str, declared: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    files = (folder / f"{kind}_{index}.pb" for index in range(len(declared)))
    return [_value(file.read_bytes(), info.type) for file, info in zip(files, declared, strict=True) if file.is_file()]


def _value(content: bytes, type: onnx.TypeProto) -> Any:
    if type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def _light(case: TestCase) -> tuple[onnx.ModelProto, list[DataSet]]:
    """A network with weights from ConstantOfShape, on the increasing inputs of the suite."""
    path = _DATA / "light" / Path(case.url or "").name
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    given = [Runner.generate_dummy_data(info) for info in model.graph.input if info.name not in constants]
    wanted = [
        numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_{index}.pb")))
        for index in range(len(model.graph.output))
    ]
    return model, [(given, wanted)]


def downgraded(case: Case) -> Case:
    """The case with a model of an opset and IR version that onnxruntime takes, if its own are too new."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for opset in model.opset_import:
        if not opset.domain:
            opset.version = min(opset.version, _NEWEST[0])
    model.ir_version = min(model.ir_version, _NEWEST[1])
    return case if model == case.model else replace(case, model=model, is_downgraded=True)


def configurations() -> list[Configuration]:
    """Every target in every dialect; the target of this machine in its own dialect."""
    found: list[Configuration] = [(HOST, None)]
    here = (host_target(), "onnxruntime")
    return found + [each for each in product(layoutopt.target_names(), sorted(DIALECTS)) if each != here]


def random_configurations(seed: int) -> list[Configuration]:
    """Every dialect, for a target with random prices, which rewrites small models; real targets rarely do.

    Dialects for certain kernels get the formats of these kernels, the others random formats.
    """
    kernels = {"onnxruntime": host_target(), "ascend": "ascend-910b"}
    return [(RandomTarget(seed, kernels.get(dialect, ""), _CHEAP), dialect) for dialect in sorted(DIALECTS)]


def target_name(configuration: Configuration) -> str:
    """The name of the target of a configuration."""
    target, _ = configuration
    return target if isinstance(target, str) else target.name


def outcome(model: onnx.ModelProto, case: Case) -> tuple[Outcome, str]:
    """The outcome of a model in onnxruntime against the expected outputs of a case, and the error message."""
    try:
        session = Session(model.SerializeToString(), threads=1)
        names = [each.name for each in session.get_inputs()]
    except Exception as error:  # onnxruntime's exceptions have no common base
        return "cannot be loaded", _line(error)
    try:
        for given, wanted in case.sets:
            got = session.run(None, dict(zip(names, given, strict=False)))
            rtol = max(case.rtol, _HALF) if any(_is_half(each) for each in wanted) else case.rtol
            Runner.assert_similar_outputs(wanted, got, rtol, case.atol)
    except Exception as error:
        return "fails", _line(error)
    return "passes", ""


def _is_half(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float16


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a case without and with layoutopt."""

    case: str
    kind: str
    is_downgraded: bool
    configuration: Configuration
    before: Outcome
    after: Outcome | Literal["refused", "crashed"] | None  # None where the result cannot be compared on this machine
    changed: bool
    detail: str

    @property
    def agrees(self) -> bool:
        """Whether the outcome is that without layoutopt; a refusal is accepted if onnxruntime cannot load the model."""
        if self.after in ("refused", "crashed"):
            return self.after == "refused" and self.before == "cannot be loaded"
        return self.after is None or (self.before == "passes") == (self.after == "passes")


def evaluate(case: Case, configuration: Configuration, before: Outcome) -> Verdict:
    """Optimise a case in one configuration, and run the result if it was rewritten."""

    def verdict(after: Outcome | Literal["refused", "crashed"] | None, changed: bool, detail: str) -> Verdict:
        return Verdict(case.name, case.kind, case.is_downgraded, configuration, before, after, changed, detail)

    target, dialect = configuration
    is_foreign = is_for_another_machine(configuration)
    try:
        # The networks take long, and are verified elsewhere (e2e).
        # The case has inputs of its own, for results that cannot be compared on random ones.
        verify = not is_foreign and case.kind != "real"
        result = layoutopt.optimize(
            case.model, target, dialect=dialect, verify=verify, allow_unverified=True, measure=False, calibrate=False
        )
    except layoutopt.LayoutoptError as error:
        return verdict("refused", False, _line(error))
    except Exception as error:  # a bug, which must not hide the others
        return verdict("crashed", False, _line(error))
    if not result.report.changed:
        is_same = result.proto == case.model
        return verdict(before if is_same else "crashed", False, result.report.reason)
    if is_foreign and any(NAME.split("{")[0] in node.name for node in result.proto.graph.node):
        return verdict(None, True, "packed for another machine")
    message = result.proto
    after, detail = outcome(message, case)
    return verdict(after, True, detail)


def is_for_another_machine(configuration: Configuration) -> bool:
    """Whether blocked kernels are written for blocks that this machine may not have."""
    return (
        configuration[1] == "onnxruntime"
        and target_name(configuration).startswith("cpu-avx")
        and configuration[0] != host_target()
    )


def verdicts(case: TestCase, chosen: Sequence[Configuration]) -> Iterator[Verdict]:
    """The verdicts on a case in every configuration, and with a version that onnxruntime takes where it is too new."""
    loaded = load(case)
    for each in dict.fromkeys((loaded, downgraded(loaded))):
        before, _ = outcome(each.model, each)
        for configuration in chosen:
            yield evaluate(each, configuration, before)
