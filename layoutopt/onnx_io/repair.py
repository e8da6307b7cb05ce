"""Repairs of faults in a model file that ONNX Runtime tolerates.

The ONNX standard forbids these faults, and ONNX Runtime loads and runs the model all the same. Each rule in `RULES` detects one
kind of fault, changes the message to standard ONNX with the semantics that it has in ONNX Runtime, and yields a `Repair` for
every change. Wrong declared shapes are repaired later, by `inference.lift`, because inference detects them.

A repair needs a confirmation: ONNX Runtime has to load the original model (`Repairs.is_confirmed`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.onnx_io.messages import (
    MIN_IR_VERSION,
    contradict,
    display_name,
    graphs,
    inner_graphs,
    keep_messages,
    nested,
    nodes,
)
from layoutopt.onnx_io.schema import find_schema, opsets_of, opsets_of_onnx
from layoutopt.onnx_io.tensors import DATA_FIELDS, DataFolder, check_tensor, data_field, size_of, tensors
from layoutopt.runtime.duplicate_definitions import loads, used_definition

_META = "layoutopt.repairs"  # in the meta of a model of onnx_ir


@dataclass(frozen=True, slots=True)
class Repair:
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


@dataclass(slots=True)
class Repairs:
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
            source = self.source
            self._is_confirmed = loads(source if isinstance(source, Path) else source.SerializeToString())
        return self._is_confirmed


def attach(model: ir.Model, repairs: Repairs) -> None:
    """Record the repairs of a model with the model."""
    model.meta[_META] = repairs


def repairs_of(model: ir.Model) -> Repairs | None:
    """The repairs that are recorded with a model; None for a model that `read` and `from_message` did not create."""
    found: Repairs | None = model.meta.get(_META)
    return found


def copy_repairs(model: ir.Model, origin: ir.Model) -> None:
    """Record the repairs of `origin` with a model that was derived from it."""
    if _META in origin.meta:
        model.meta[_META] = origin.meta[_META]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be repaired in place.

    Attributes:
        proto: the message.
        folder: the folder of its external data.
        undefined: the names of the parts with fields that ONNX does not define.
    """

    proto: onnx.ModelProto
    folder: DataFolder
    undefined: Sequence[str] = ()


_NEWEST_OPSET = (1 << 31) - 1  # onnx and ONNX Runtime count in 32 bits


def repair(draft: Draft) -> list[Repair]:
    """Repair a message in place."""
    return [each for rule in RULES for each in rule(draft)]


def _repair_versions(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime reads older IR versions as version 3 and uses the last import of a domain; it ignores unused domains."""
    proto = draft.proto
    if proto.HasField("ir_version") and proto.ir_version < MIN_IR_VERSION:
        yield Repair("model", f"IR version {proto.ir_version} is too old", f"it is read as version {MIN_IR_VERSION}")
        proto.ir_version = MIN_IR_VERSION
    used = {node.domain for node in nodes(proto)} | {"", "ai.onnx"}
    versions: dict[str, int] = {}
    for opset in proto.opset_import:
        domain, version = "" if opset.domain == "ai.onnx" else opset.domain, opset.version
        if opset.domain not in used and not 1 <= version <= opsets_of_onnx().get(domain, _NEWEST_OPSET):
            fault = f"opset {version} of {opset.domain} cannot exist"
            yield Repair("model", fault, "the import is dropped, as no node uses it")
            continue
        if (other := versions.get(domain, version)) != version:
            fault = f"{domain or 'ai.onnx'} is imported at versions {other} and {version}"
            yield Repair("model", fault, f"version {version} is used")
        versions[domain] = version
    if len(versions) < len(proto.opset_import):
        del proto.opset_import[:]
        for domain, version in versions.items():
            proto.opset_import.add(domain=domain, version=version)


def _drop_undefined_fields(draft: Draft) -> Iterator[Repair]:
    for where in dict.fromkeys(draft.undefined):
        yield Repair(where, "has a field that ONNX does not define", "the field is dropped")
    if draft.undefined:
        draft.proto.DiscardUnknownFields()


def _keep_last(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime uses the last one of several metadata entries, annotations or attributes of one name.

    It refuses repeated attributes of most nodes, but not of nodes in functions or in the domain `ai.onnx`.
    """
    lists: list[tuple[str, Any, str, str]] = [("model", draft.proto.metadata_props, "metadata key", "key")]
    lists += [
        (f"graph {graph.name!r}", graph.quantization_annotation, "annotation", "tensor_name")
        for graph in graphs(draft.proto)
    ]
    lists += [(display_name(node), node.attribute, "attribute", "name") for node in nodes(draft.proto)]
    for where, messages, what, key in lists:
        counts = Counter(getattr(each, key) for each in messages)
        for name, count in counts.items():
            if count > 1:
                yield Repair(where, f"{what} {name!r} occurs {count} times", "the last one is used")
        keep_messages(messages, list({getattr(each, key): each for each in messages}.values()))


def _keep_one_definition(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime uses one of several initializers and Constant nodes of one name; initializers precede Constant nodes."""
    for graph in graphs(draft.proto):
        definitions: dict[str, list[onnx.TensorProto | onnx.NodeProto]] = {}
        for tensor in graph.initializer:
            definitions.setdefault(tensor.name, []).append(tensor)
        for node in graph.node:
            if node.op_type == "Constant" and len(node.output) == 1 and node.output[0]:
                definitions.setdefault(node.output[0], []).append(node)
        dropped: set[int] = set()
        for name, found in definitions.items():
            if len(found) > 1:
                first, last = found[0], found[-1]
                elements = [first] if isinstance(first, onnx.TensorProto) else [each.t for each in first.attribute]
                size = sum(map(size_of, elements))
                used = used_definition(size, len(found), has_constant=isinstance(last, onnx.NodeProto))
                dropped |= {id(each) for number, each in enumerate(found) if number != used}
                fault = f"{len(found)} initializers or Constant nodes have this name"
                yield Repair(name, fault, f"number {used + 1} is used, initializers counted first")
        keep_messages(graph.initializer, [each for each in graph.initializer if id(each) not in dropped])
        keep_messages(graph.node, [each for each in graph.node if id(each) not in dropped])


def _keep_one_data_field(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime reads external data before `raw_data`, and that before the field that belongs to the element type."""
    for where, tensor in tensors(draft.proto):
        if tensor.data_type not in set(ir.DataType):
            continue
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        own = "external_data" if is_external else data_field(tensor)
        others = [each for each in DATA_FIELDS if each != own and len(getattr(tensor, each))]
        if others and len(getattr(tensor, own)):
            yield Repair(where, f"has data in {own} and in {others[0]}", f"{own} is used")
            for each in others:
                tensor.ClearField(each)


def _drop_broken_initializers(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check the elements of an initializer that nothing reads."""
    for graph in graphs(draft.proto):
        broken = {}
        for tensor in graph.initializer:
            try:
                check_tensor(tensor, tensor.name, draft.folder)
            except ModelError as error:
                broken[tensor.name] = error.what
        read = {info.name for info in graph.input}
        for each in nested([graph]) if broken else ():
            read.update(name for node in each.node for name in node.input)
            read.update(info.name for info in each.output)
        for name in broken.keys() - read:
            yield Repair(name, broken[name], "the initializer is dropped, as nothing reads it")
        _drop(graph.initializer, broken.keys() - read)


def _drop_broken_functions(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check a function that no node calls."""
    called = {(node.domain, node.op_type) for node in nodes(draft.proto)}
    kept = []
    for function in draft.proto.functions:
        is_called = (function.domain, function.name) in called
        unknown = None if is_called else _unknown_operator(function)
        if unknown is None:
            kept.append(function)
        else:
            name = f"{function.domain}::{function.name}"
            yield Repair(name, f"calls {unknown}, which does not exist", "the function is dropped, as nothing calls it")
    keep_messages(draft.proto.functions, kept)


def _unknown_operator(function: onnx.FunctionProto) -> str | None:
    """The first operator of a function in an onnx domain that has no schema at the function's opset."""
    opsets = opsets_of({opset.domain: opset.version for opset in function.opset_import})
    for node in (*function.node, *(node for graph in nested(inner_graphs(function.node)) for node in graph.node)):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain in opsets_of_onnx() and find_schema(node.op_type, domain, opsets.get(domain, 0)) is None:
            return str(node.op_type)
    return None


def _drop_contradicting_declarations(draft: Draft) -> Iterator[Repair]:
    """An input or initializer has the type that it is defined with, whatever `value_info` or an output declares again.

    Of several outputs of one name, the first one's type is used.
    """
    for graph in graphs(draft.proto):
        initializers = {
            tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            for tensor in graph.initializer
        }
        types = initializers | {info.name: info.type for info in graph.input}
        defined = set(types)
        for info in graph.output:
            types.setdefault(info.name, onnx.TypeProto.FromString(info.type.SerializeToString()))
        wrong = set()
        for info in (*graph.output, *(info for info in graph.value_info if info.name in defined)):
            if contradict(types[info.name], info.type):
                wrong.add(info.name)
                yield Repair(info.name, "is declared twice, as different types", "the type of its definition is used")
                info.type.CopyFrom(types[info.name])
        _drop(graph.value_info, wrong & defined)


def _drop(messages: Any, names: Collection[str]) -> None:
    """Drop the messages that have one of some names."""
    keep_messages(messages, [each for each in messages if each.name not in names])


RULES: tuple[Callable[[Draft], Iterator[Repair]], ...] = (
    _repair_versions,
    _drop_undefined_fields,
    _keep_last,
    _drop_broken_functions,
    _keep_one_definition,
    _keep_one_data_field,
    _drop_broken_initializers,
    _drop_contradicting_declarations,
)
"""The rules, in the order in which they are applied."""
