"""Engines: the programs that run models on this machine, each by an adapter.

    model = find_engine("openvino").load("model.onnx", threads=1)
    model.run({"x": array})     # the outputs, in the order of the model
    model.layers()              # the executed graph

A runtime file names its engine. A package adds an adapter as an entry point `layoutopt.engines`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime

from layoutopt.errors import ArgumentError
from layoutopt.ir.types import Op
from layoutopt.record import Record
from layoutopt.registry import EntryPoints, instance_of, library
from layoutopt.runtime.session import REORDERS, TRACED_RUN, inference_session, is_kernel_event
from layoutopt.runtime.utf8_paths import utf8_path

_WITH_BODIES = ("If", "Loop", "Scan")


class ExecutedLayer(Record):
    """A layer of the executed graph.

    Attributes:
        kind: the name that the engine has for such layers.
        ops: the names of the nodes that it computes, in the engine's spelling; empty if the engine has added it.
        seconds: of a run.
        moves: whether it only changes the layout of its input.
        is_interface: whether the engine has added it at an input or an output of the model.
    """

    kind: str
    ops: tuple[str, ...] = ()
    seconds: float = 0.0
    moves: bool = False
    is_interface: bool = False

    def computes(self, op: Op) -> bool:
        """Whether the layer computes an op. OpenVINO names one after its output if that is an output of the model."""
        return not {*self.ops}.isdisjoint(f"{op.name},{op.y.tensor}".split(","))


class LoadedModel(ABC):
    """A model that is ready to run."""

    @abstractmethod
    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs, in the order of the model.

        Raises:
            RuntimeError: the engine cannot run the model.
        """

    @abstractmethod
    def layers(self) -> Sequence[ExecutedLayer]:
        """The layers of the executed graph, without constants, with means of all runs since the model was loaded."""


class Engine(ABC):
    """The adapter of a program that runs models on this machine.

    A package's adapter declares its name and the version of the program as attributes of the class.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in runtime files."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the program."""

    @abstractmethod
    def load(self, model: bytes | str, threads: int, trace: Path | None = None) -> LoadedModel:
        """A model that computes float32 in float32, in a number of threads.

        Args:
            model: the bytes of a model, or its file.
            threads: the number of threads.
            trace: the prefix of files in which times of layers may be kept; None if `layers` needs no times.

        Raises:
            RuntimeError: the engine cannot load the model.
        """


class OnnxRuntime(Engine):
    """Stock onnxruntime on the CPU; its executed graph needs a trace."""

    name = "onnxruntime"
    version = str(onnxruntime.__version__)

    def load(self, model: bytes | str, threads: int, trace: Path | None = None) -> LoadedModel:
        """A session with default options."""
        with utf8_path(model) as source:
            return _OnnxRuntimeModel(inference_session(source, threads=threads, trace=trace))


class _OnnxRuntimeModel(LoadedModel):
    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        return list(self._session.run(None, feed))

    def layers(self) -> Sequence[ExecutedLayer]:
        return traced_layers(json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8")))


def traced_layers(events: Sequence[Mapping[str, Any]]) -> list[ExecutedLayer]:
    """The layers in a trace of onnxruntime, without the first run."""
    first, *others = sorted((each["ts"], each["dur"]) for each in events if each["name"] == TRACED_RUN)
    kernels = [each for each in events if is_kernel_event(each) and each["args"]["op_name"] not in _WITH_BODIES]
    return [
        ExecutedLayer(
            each["args"]["op_name"],
            (each["name"].removesuffix("_kernel_time"),),
            each["dur"] / 1e6 / len(others),
            each["args"]["op_name"] in REORDERS,
        )
        for each in kernels
        if each["ts"] > sum(first)
    ]


def share_of_moves(layers: Sequence[ExecutedLayer]) -> float:
    """The share of the time of all layers in those that only change the layout of their inputs."""
    total = sum(each.seconds for each in layers)
    return sum(each.seconds for each in layers if each.moves) / (total or 1.0)


class OpenVino(Engine):
    """OpenVINO's CPU plugin, which all models share; configured for latency, in float32 like onnxruntime.

    With one thread, a model runs in the thread that calls it, and the caller pins that to a CPU.
    """

    name = "openvino"

    @cached_property
    def _core(self) -> Any:
        core = library("openvino", "openvino", "runtime openvino").Core()
        core.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin
        return core

    @property
    def version(self) -> str:
        """The version of the package."""
        return str(library("openvino", "openvino", "runtime openvino").__version__).partition("-")[0]

    def load(self, model: bytes | str, threads: int, trace: Path | None = None) -> LoadedModel:
        """A compiled model."""
        config = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": False,
            "PERF_COUNT": trace is not None,
        }
        with utf8_path(model) as source:
            return _OpenVinoModel(self._core.compile_model(self._core.read_model(source), "CPU", config))


class _OpenVinoModel(LoadedModel):
    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._inputs = {name for each in compiled.inputs for name in each.names}  # those that an op reads

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        read = {name: array for name, array in feed.items() if name in self._inputs}
        return list(self._request.infer(read, share_inputs=True, share_outputs=True).values())

    def layers(self) -> Sequence[ExecutedLayer]:
        nodes = self._compiled.get_runtime_model().get_ordered_ops()
        return [each for each in map(_layer, nodes) if each is not None]


_CONSTANTS = {"Const", "Constant"}
_INTERFACE = {"Input", "Output", "Parameter", "Result"}


def _text(node: Any, key: str) -> str:
    """An attribute of a node of OpenVINO's executed graph."""
    info = node.get_rt_info()
    return str(info[key].astype(str)) if key in info else ""


def _layer(node: Any) -> ExecutedLayer | None:
    """The layer of a node of OpenVINO's executed graph; None for inputs, outputs, and what is computed when it is compiled."""
    kind, names, microseconds = (_text(node, key) for key in ("layerType", "originalLayersNames", "execTimeMcs"))
    sources = {_text(each.get_node(), "layerType") for each in node.input_values()}
    targets = {_text(each.get_node(), "layerType") for output in node.outputs() for each in output.get_target_inputs()}
    if kind in _CONSTANTS | _INTERFACE or sources <= _CONSTANTS:
        return None
    return ExecutedLayer(
        kind,
        tuple(filter(None, names.split(","))),
        float(microseconds) / 1e6 if microseconds.isdigit() else 0.0,
        kind in ("Transpose", "Reorder"),
        kind == "Reorder" and not names and not _INTERFACE.isdisjoint(sources | targets),
    )


_NEEDS = "it has to derive from layoutopt.extend.Engine"
_BUILT_IN = (OnnxRuntime(), OpenVino())
ENGINES: EntryPoints[Engine] = EntryPoints(
    "layoutopt.engines", instance_of(Engine, _NEEDS), built_in={each.name: each for each in _BUILT_IN}
)


def find_engine(name: str) -> Engine:
    """The engine with a name, whose program is installed.

    Raises:
        ArgumentError: there is no such engine.
        ExtensionError: it is that of a package, and cannot be loaded.
        LayoutoptError: the program is not installed.
    """
    if name not in ENGINES:
        raise ArgumentError("no such engine", where=name, hint=f"there are {', '.join(sorted(ENGINES))}")
    engine = ENGINES[name]
    engine.version  # noqa: B018  # an error if it is not installed
    return engine
