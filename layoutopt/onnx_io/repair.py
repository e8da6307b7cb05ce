"""Repairs of faults in a model file that ONNX Runtime tolerates.

The ONNX standard forbids these faults, and ONNX Runtime loads and runs the model all the same. Each rule in `RULES` detects one
kind of fault, changes the message to standard ONNX with the semantics that it has in ONNX Runtime, and yields a `Repair` for
every change. Wrong declared shapes are repaired later, by `inference.lift`, because inference detects them.

A repair needs a confirmation: ONNX Runtime has to load the original model (`Repairs.is_confirmed`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
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
from layoutopt.onnx_io.structure import constant_tensor
from layoutopt.onnx_io.tensors import DATA_FIELDS, DataFolder, check_sparse, check_tensor, data_field, size_of
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


def repair_external_data(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime uses the last of several entries of one key, and the size of the shape in the place of a length of 0."""
    for name, tensor in _tensors(draft.proto):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        length = entries.get("length", "")
        has_no_length = bool(length) and not length.strip("0") and size_of(tensor) > 0
        if has_no_length:
            yield Repair(name, "has external data of length 0", "the size of its shape is used")
            del entries["length"]
        elif len(entries) < len(tensor.external_data):
            yield Repair(name, "has external data with two entries of one key", "the last one is used")
        else:
            continue
        tensor.ClearField("external_data")
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


def clear_segments(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime takes a segment of a tensor for the whole tensor."""
    for name, tensor in _tensors(draft.proto):
        if tensor.HasField("segment"):
            yield Repair(name, "is a segment of a tensor", "it is read as the whole tensor")
            tensor.ClearField("segment")


def clear_other_data_fields(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime reads external data before `raw_data`, and that before the field that belongs to the element type."""
    for name, tensor in _tensors(draft.proto):
        if tensor.data_type not in set(ir.DataType):
            continue
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        own = "external_data" if is_external else data_field(tensor)
        others = [each for each in DATA_FIELDS if each != own and len(getattr(tensor, each))]
        if others and len(getattr(tensor, own)):
            yield Repair(name, f"has data in {own} and in {others[0]}", f"{own} is used")
            for each in others:
                tensor.ClearField(each)


def _tensors(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every initializer and every tensor in an attribute, with a name for it."""
    for graph in graphs(proto):
        for tensor in graph.initializer:
            yield tensor.name, tensor
    for node in nodes(proto):
        for attribute in node.attribute:
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                yield tensor.name or display_name(node), tensor


_MAX_DEFAULT = 1 << 20  # bytes of zeros that a repair may write
_NEWEST_OPSET = (1 << 31) - 1  # onnx and ONNX Runtime count in 32 bits


def repair(draft: Draft) -> list[Repair]:
    """Repair a message in place."""
    return [each for rule in RULES for each in rule(draft)]


def _raise_ir_version(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime reads older IR versions as version 3, the first one with opset imports."""
    if draft.proto.HasField("ir_version") and draft.proto.ir_version < MIN_IR_VERSION:
        yield Repair(
            "model", f"IR version {draft.proto.ir_version} is too old", f"it is read as version {MIN_IR_VERSION}"
        )
        draft.proto.ir_version = MIN_IR_VERSION


def _keep_last_opset_import(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime uses the last of several imports of one domain."""
    versions: dict[str, int] = {}
    contradicted: dict[str, int] = {}
    for opset in draft.proto.opset_import:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if versions.setdefault(domain, opset.version) != opset.version:
            contradicted.setdefault(domain, versions[domain])
        versions[domain] = opset.version
    if not contradicted:
        return
    for domain, first in contradicted.items():
        fault = f"{domain or 'ai.onnx'} is imported at versions {first} and {versions[domain]}"
        yield Repair("model", fault, f"version {versions[domain]} is used")
    del draft.proto.opset_import[:]
    for domain, version in versions.items():
        draft.proto.opset_import.add(domain=domain, version=version)


def _drop_impossible_opset_imports(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check the version of a domain that no node uses."""
    used = {node.domain for node in nodes(draft.proto)} | {"", "ai.onnx"}
    newest = opsets_of_onnx()
    kept = []
    for opset in draft.proto.opset_import:
        if opset.domain not in used and not 1 <= opset.version <= newest.get(opset.domain, _NEWEST_OPSET):
            fault = f"opset {opset.version} of {opset.domain} cannot exist"
            yield Repair("model", fault, "the import is dropped, as no node uses it")
        else:
            kept.append(opset)
    keep_messages(draft.proto.opset_import, kept)


def _drop_undefined_fields(draft: Draft) -> Iterator[Repair]:
    for where in dict.fromkeys(draft.undefined):
        yield Repair(where, "has a field that ONNX does not define", "the field is dropped")
    if draft.undefined:
        draft.proto.DiscardUnknownFields()


def _keep_last_metadata(draft: Draft) -> Iterator[Repair]:
    for key in _keep_last(draft.proto.metadata_props, "key"):
        yield Repair("model", f"metadata key {key!r} occurs twice", "the last value is kept")


def _keep_last_annotation(draft: Draft) -> Iterator[Repair]:
    for graph in graphs(draft.proto):
        for name in _keep_last(graph.quantization_annotation, "tensor_name"):
            yield Repair(name, "has two quantization annotations", "the last one is kept")


def _keep_last_attribute(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime refuses repeated attributes of most nodes, but not of nodes in functions or in the domain `ai.onnx`."""
    for node in nodes(draft.proto):
        for name in _keep_last(node.attribute, "name"):
            yield Repair(display_name(node), f"attribute {name!r} occurs twice", "the last value is used")


def _drop_unnamed_initializers(draft: Draft) -> Iterator[Repair]:
    for graph in graphs(draft.proto):
        if not all(tensor.name for tensor in graph.initializer):
            yield Repair(f"graph {graph.name!r}", "an initializer has no name", "it is dropped, as no node can read it")
            _drop(graph.initializer, {""})


def _drop_broken_unused_functions(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check a function that no node calls."""
    called = {(node.domain, node.op_type) for node in nodes(draft.proto)}
    kept = []
    for function in draft.proto.functions:
        name = f"{function.domain}::{function.name}"
        unknown = None if (function.domain, function.name) in called else _unknown_operator(function)
        if unknown is None:
            kept.append(function)
        else:
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


def _keep_one_definition(draft: Draft) -> Iterator[Repair]:
    """Keep the one of several initializers and Constant nodes of one name that ONNX Runtime uses.

    Initializers precede Constant nodes in its order.
    """
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
                has_constant = isinstance(found[-1], onnx.NodeProto)
                used = used_definition(_size_of_definition(found[0]), len(found), has_constant=has_constant)
                dropped |= {id(each) for number, each in enumerate(found) if number != used}
                yield _several_definitions(name, found, used)
        keep_messages(graph.initializer, [each for each in graph.initializer if id(each) not in dropped])
        keep_messages(graph.node, [each for each in graph.node if id(each) not in dropped])


def _size_of_definition(definition: onnx.TensorProto | onnx.NodeProto) -> int:
    """The bytes of an initializer, or of the tensor of a Constant node; 0 for the short forms of Constant."""
    if isinstance(definition, onnx.TensorProto):
        return size_of(definition)
    return sum(size_of(attribute.t) for attribute in definition.attribute if attribute.HasField("t"))


def _several_definitions(name: str, found: Sequence[onnx.TensorProto | onnx.NodeProto], used: int) -> Repair:
    """The repair of a value with several definitions, the one at index `used` being kept."""
    count = sum(isinstance(each, onnx.TensorProto) for each in found)
    constants = [each for each in found if isinstance(each, onnx.NodeProto)]
    texts = [] if not count else ["an initializer"] if count == 1 else [f"{_NUMBERS.get(count, count)} initializers"]
    texts += [repr(display_name(each)) for each in constants]
    if used < count:
        remedy = "the initializer is used" if count == 1 else f"the {_position(used, count)} one is used"
    elif len(constants) == 1:
        remedy = "the Constant node is used"
    else:
        remedy = f"the {_position(used - count, len(constants))} Constant node is used"
    return Repair(name, f"{' and '.join(texts)} have this name", remedy)


def _keep_one_optional_input(draft: Draft) -> Iterator[Repair]:
    """An input with an initializer is optional, and ONNX Runtime allows several declarations of it."""
    graph = draft.proto.graph
    defaults = {tensor.name for tensor in graph.initializer}
    counted = Counter(info.name for info in graph.input)
    repeated = {name for name, count in counted.items() if count > 1 and name in defaults}
    for name in sorted(repeated):
        yield Repair(name, "two inputs have this name", "the first one is used")
    if repeated:
        _keep_one(graph.input, "name", dict.fromkeys(repeated, 0))


def _constants_of_inputs_to_defaults(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime makes initializers of Constant nodes first; with the name of an input, that is the input's default value."""
    graph = draft.proto.graph
    inputs = {info.name for info in graph.input}
    kept = []
    for node in graph.node:
        is_default = node.op_type == "Constant" and not inputs.isdisjoint(node.output)
        tensor = constant_tensor(ir.serde.deserialize_node(node)) if is_default else None
        if tensor is None:
            kept.append(node)
            continue
        (name,) = node.output
        yield Repair(
            name, f"an input and {display_name(node)!r} have this name", "the constant is the input's default value"
        )
        graph.initializer.append(ir.serde.serialize_tensor(tensor))
        graph.initializer[-1].name = name
        type = _type_of(graph.initializer[-1])
        for info in graph.input:
            if info.name == name and contradict(info.type, type):
                yield Repair(name, "is declared in another shape than its default value", "the default value's is used")
                info.type.CopyFrom(type)
    keep_messages(graph.node, kept)


_NUMBERS = {2: "two", 3: "three"}


def _position(index: int, count: int) -> str:
    return "first" if index == 0 else "last" if index == count - 1 else f"{index + 1}th" if index > 1 else "second"


def _drop_broken_unused_initializers(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check the elements of an initializer that no node reads."""
    for graph in graphs(draft.proto):
        broken = {}
        for tensor in graph.initializer:
            try:
                check_tensor(tensor, tensor.name, draft.folder)
            except ModelError as error:
                broken[tensor.name] = error.what
        for sparse in graph.sparse_initializer:
            try:
                check_sparse(sparse)
            except ModelError as error:
                broken[sparse.values.name] = error.what
        read = _names_read(graph) if broken else set()
        unused = {name: what for name, what in broken.items() if name not in read}
        yield from _zero_unused_defaults(graph, {name: what for name, what in broken.items() if name in read})
        for name, what in unused.items():
            yield Repair(name, what, "the initializer is dropped, as nothing reads it")
        _drop(graph.initializer, unused)
        kept = [each for each in graph.sparse_initializer if each.values.name not in unused]
        keep_messages(graph.sparse_initializer, kept)


def _zero_unused_defaults(graph: onnx.GraphProto, broken: Mapping[str, str]) -> Iterator[Repair]:
    """The broken default value of an input that nothing reads becomes zeros, so that the input stays optional."""
    used = _names_read(graph, includes_inputs=False) if broken else set()
    for tensor in graph.initializer:
        size = size_of(tensor) if tensor.name in broken and tensor.name not in used else 0
        if 0 < size <= _MAX_DEFAULT:
            yield Repair(tensor.name, broken[tensor.name], "the default value is zeros, as nothing reads the input")
            zeros = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            zeros.raw_data = bytes(size)
            tensor.CopyFrom(zeros)


def _drop_broken_unused_constants(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime does not check the elements of a Constant node whose output no node reads."""
    for graph in graphs(draft.proto):
        kept = []
        for node in graph.node:
            fault = _broken_constant(node, draft.folder)
            if fault and _names_read(graph).isdisjoint(node.output):
                yield Repair(display_name(node), fault, "the node is dropped, as nothing reads it")
            else:
                kept.append(node)
        keep_messages(graph.node, kept)


def _broken_constant(node: onnx.NodeProto, folder: DataFolder) -> str:
    """The fault of the tensor of a Constant node; empty if it has none."""
    tensors = (attribute.t for attribute in node.attribute if attribute.HasField("t"))
    for tensor in tensors if node.op_type == "Constant" else ():
        try:
            check_tensor(tensor, display_name(node), folder)
        except ModelError as error:
            return str(error.what)
    return ""


def _names_read(graph: onnx.GraphProto, *, includes_inputs: bool = True) -> set[str]:
    """The names that nodes and outputs of a graph and its subgraphs read, and with `includes_inputs` those of its inputs."""
    found = {info.name for info in graph.input} if includes_inputs else set()
    for each in nested([graph]):
        found.update(name for node in each.node for name in node.input)
        found.update(info.name for info in each.output)
    return found


def _clear_references(draft: Draft) -> Iterator[Repair]:
    """Outside of functions ONNX Runtime reads the value that an attribute has itself, 0 or empty where it has none."""
    for graph in nested([draft.proto.graph]):
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    fault = f"attribute {attribute.name!r} refers to an attribute of a function, and is in none"
                    yield Repair(display_name(node), fault, "its own value is used")
                    attribute.ClearField("ref_attr_name")


def _keep_first_constant_value(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime converts a Constant node's first attribute to an initializer and ignores further ones."""
    for node in nodes(draft.proto):
        if node.op_type == "Constant" and len(node.attribute) > 1:
            yield Repair(display_name(node), "has several values", "the first one is used")
            del node.attribute[1:]


def _drop_contradicting_declarations(draft: Draft) -> Iterator[Repair]:
    """An input or initializer has the type that it is defined with, whatever `value_info` or an output declares again."""
    for graph in graphs(draft.proto):
        types = {tensor.name: _type_of(tensor) for tensor in graph.initializer}
        types |= {info.name: info.type for info in graph.input}
        wrong = set()
        for info in graph.output:  # the first of several outputs of one name is used
            types.setdefault(info.name, onnx.TypeProto.FromString(info.type.SerializeToString()))
        defined = {tensor.name for tensor in graph.initializer} | {info.name for info in graph.input}
        for info in (*graph.output, *(info for info in graph.value_info if info.name in defined)):
            if contradict(types[info.name], info.type):
                wrong.add(info.name)
                yield Repair(info.name, "is declared twice, as different types", "the type of its definition is used")
        for info in graph.output:
            if info.name in wrong:
                info.type.CopyFrom(types[info.name])
        wrong &= defined
        if wrong:
            _drop(graph.value_info, wrong)


def _type_of(tensor: onnx.TensorProto) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))


def _keep_last(messages: Any, key: str) -> list[str]:
    """Keep the last of several messages of one key, and return the keys that several messages had."""
    repeated = [name for name, count in Counter(getattr(each, key) for each in messages).items() if count > 1]
    if repeated:
        _keep_one(messages, key)
    return repeated


def _keep_one(messages: Any, key: str, chosen: Mapping[str, int] = MappingProxyType({})) -> None:
    """Keep the last of several messages of one key, or the one at a chosen index, at the position of the first."""
    found: dict[str, list[Any]] = {}
    for each in messages:
        found.setdefault(getattr(each, key), []).append(each)
    keep_messages(messages, [group[chosen.get(name, -1)] for name, group in found.items()])


def _drop(messages: Any, names: Collection[str]) -> None:
    """Drop the messages that have one of some names."""
    keep_messages(messages, [each for each in messages if each.name not in names])


RepairRule: TypeAlias = Callable[[Draft], Iterator[Repair]]

RULES: tuple[RepairRule, ...] = (
    _raise_ir_version,
    _keep_last_opset_import,
    _drop_impossible_opset_imports,
    _drop_undefined_fields,
    _keep_last_metadata,
    _keep_last_annotation,
    _keep_last_attribute,
    _drop_unnamed_initializers,
    _drop_broken_unused_functions,
    _keep_one_definition,
    _constants_of_inputs_to_defaults,
    _keep_one_optional_input,
    repair_external_data,
    clear_segments,
    clear_other_data_fields,
    _drop_broken_unused_initializers,
    _drop_broken_unused_constants,
    _clear_references,
    _keep_first_constant_value,
    _drop_contradicting_declarations,
)
"""The rules, in the order in which they are applied."""
