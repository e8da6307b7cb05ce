"""Repairs of faults in a model file that ONNX Runtime tolerates.

The ONNX standard forbids these faults, and ONNX Runtime loads and runs the model all the same. Contradicting declarations are
dropped here. Wrong declared shapes are repaired later, by `inference.lift`, because inference detects them. All other faults,
such as two initializers of one name, are repaired by ONNX Runtime itself: it saves the model that it has loaded.

A repair needs a confirmation: ONNX Runtime has to load the original model (`Repairs.is_confirmed`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir
from msgspec import Struct, field

from layoutopt.files import scratch_folder
from layoutopt.onnx_io.messages import contradict, graphs, keep_last, keep_messages, nodes
from layoutopt.onnx_io.schema import MIN_IR_VERSION
from layoutopt.record import Record
from layoutopt.runtime.session import load_failure

REPAIRS = "layoutopt.repairs"
"""The key in the meta of a main graph, whose copies have the same meta: its `Repairs`."""


class Repair(Record):
    """One fault of a model, and its correction by the reader.

    Attributes:
        where: the node, tensor or graph that is at fault, by name.
        fault: the fault.
        remedy: the correction.
    """

    where: str
    fault: str
    remedy: str

    @property
    def reason(self) -> str:
        """Fault and remedy in one sentence."""
        return f"{self.fault}: {self.remedy}"


Source: TypeAlias = Path | onnx.ModelProto


class Repairs(Struct):
    """The repairs of one model.

    Attributes:
        source: the file or message that the model was read from.
        found: the repairs, in the order in which they were made.
    """

    source: Source
    found: list[Repair] = field(default_factory=list)
    _is_confirmed: bool | None = None

    def is_confirmed(self) -> bool:
        """Whether ONNX Runtime loads the original model. The result is cached."""
        if self._is_confirmed is None:
            self._is_confirmed = not load_failure(self._given, is_optimised=False)
        return self._is_confirmed

    def saved_by_onnxruntime(self) -> onnx.ModelProto | None:
        """The model as ONNX Runtime loads it, without optimisations; None if it does not load or save it."""
        with scratch_folder() as folder:
            saved = folder / "saved.onnx"
            if load_failure(self._given, is_optimised=False, saved=saved):
                return None
            message = onnx.load(saved, load_external_data=False)
        message.ir_version = max(message.ir_version, MIN_IR_VERSION)
        _keep_last(message)
        used = {node.domain for node in nodes(message)} | {"", "ai.onnx"}  # it imports all domains that it has
        keep_messages(message.opset_import, [each for each in message.opset_import if each.domain in used])
        return message

    @property
    def _given(self) -> Path | bytes:
        return self.source if isinstance(self.source, Path) else self.source.SerializeToString()


def _keep_last(message: onnx.ModelProto) -> None:
    """Keep the last one of the parts of one name that ONNX Runtime saves repeatedly, although it has used one of them."""
    for opset in message.opset_import:
        opset.domain = "" if opset.domain == "ai.onnx" else opset.domain
    keep_last(message.opset_import, "domain")
    for node in nodes(message):
        keep_last(node.attribute, "name")
    for graph in graphs(message):
        keep_last(graph.initializer, "name")
        keep_last(graph.quantization_annotation, "tensor_name")


def repairs_of(model: ir.Model) -> Repairs | None:
    """The repairs that are recorded with a model; None for a model that `read` and `from_message` did not create."""
    found: Repairs | None = model.graph.meta.get(REPAIRS)
    return found


def repair(message: onnx.ModelProto) -> list[Repair]:
    """Repair a message in place. Fields that ONNX does not define are dropped."""
    message.DiscardUnknownFields()
    return [*_drop_contradicting_declarations(message)]


def _drop_contradicting_declarations(message: onnx.ModelProto) -> Iterator[Repair]:
    """An input or initializer has the type that it is defined with, whatever `value_info` or an output declares again.

    Of several outputs of one name, the first one's type is used.
    """
    for graph in graphs(message):
        initializers = {
            tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            for tensor in graph.initializer
        }
        inputs = {info.name: info.type for info in graph.input}
        types = initializers | inputs
        defined = set(types)
        for info in graph.output:
            types.setdefault(info.name, onnx.TypeProto.FromString(info.type.SerializeToString()))
        wrong = set()
        for info in (*graph.output, *(info for info in graph.value_info if info.name in defined)):
            if contradict(types[info.name], info.type):
                wrong.add(info.name)
                yield Repair(info.name, "is declared twice, as different types", "the type of its definition is used")
            if info.name in wrong or info.name in inputs:  # onnx_ir gives a value the type that is declared last
                info.type.CopyFrom(types[info.name])
        keep_messages(graph.value_info, [info for info in graph.value_info if info.name not in wrong & defined])
