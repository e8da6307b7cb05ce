"""Checks of the tensors in a file: the number of elements, their type, and the location of external data.

Only sizes are read. Sparse tensors are refused, since formats and onnx_ir support dense tensors only. Attributes are written
unchanged, and the model may be written to another folder. So a tensor of an attribute in external data is refused if the model
is read strictly or the data is outside of the model's folder; otherwise the model is read as ONNX Runtime saves it.

A location of external data is a path relative to the folder of the model file, and must be inside of it. The file at that path
may be a symbolic link, because a model hub stores a model as links into one cache folder:

    snapshots/1a2b/model.onnx      -> ../../blobs/93f0...
    snapshots/1a2b/model.onnx_data -> ../../blobs/77c1...

ONNX Runtime accepts data whose real path is below the folder of the model's path or below the folder of the model's real
path. So does layoutopt. Hard links are plain files.
"""

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from msgspec import field

from layoutopt.errors import ModelError
from layoutopt.onnx_io.mapping import INSIDE, KNOWN_TYPES, MappedTensor, WeightFile, nbytes
from layoutopt.onnx_io.messages import display_name, graphs, nodes
from layoutopt.onnx_io.vocabulary import graphs_of
from layoutopt.record import Record


class DataFolder(Record):
    """The folders that may contain the external data of a model.

    Attributes:
        path: the folder that locations are relative to.
        roots: the real paths of the folders that data must be below.
        files: the files of the data by location, those that have been checked.
    """

    path: Path
    roots: tuple[str, ...]
    files: dict[str, WeightFile] = field(default_factory=dict)

    @classmethod
    def of_file(cls, model: WeightFile) -> "DataFolder":
        """The folder of a model file, and the folder of the file that it is a symbolic link to."""
        path = Path(os.path.abspath(model.path))
        real = os.path.realpath(path)
        roots = dict.fromkeys([os.path.realpath(path.parent), os.path.dirname(real)])
        return cls(path.parent, tuple(roots), {INSIDE: model})

    @classmethod
    def current(cls) -> "DataFolder":
        """The current folder, for a model that is no file."""
        return cls(Path.cwd(), (os.path.realpath(Path.cwd()),))

    def size(self, location: str, where: str) -> int:
        """The size in bytes of a data file, which is opened.

        Args:
            location: the path in the model file.
            where: the name of the tensor, for errors.

        Raises:
            ModelError: the path is outside of the folder, the file is a link to another folder, is missing or is not regular.
        """
        if location in self.files:
            return self.files[location].state[0]
        self._check_location(location, where)
        path = self.path / location
        try:
            path.stat()
            file = WeightFile.open(path) if path.is_file() else None  # others may block
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            what = f"external data {location!r} is missing" if is_missing else f"cannot read {location!r}"
            is_limited = error.errno == errno.EMFILE
            hint = "raise the limit of open files (ulimit -n)" if is_limited else f"copy it to {self.path}"
            raise ModelError(what, where=where, hint=hint) from error
        real = os.path.realpath(path)
        if not any(real.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots):
            what = f"external data {location!r} is a symbolic link to {real!r}, outside of the model's folder"
            hint = "copy the file itself next to the model, or open the model through its own link"
            raise ModelError(what, where=where, hint=hint)
        if file is None:
            what = f"external data {location!r} is not a plain file"
            raise ModelError(what, where=where, hint="copy the file itself next to the model")
        self.files[location] = file
        return file.state[0]

    def _check_location(self, location: str, where: str) -> None:
        is_below = bool(location) and "\0" not in location and not os.path.isabs(location)
        if not is_below or os.path.normpath(location).split(os.sep)[0] in ("..", "."):
            what = f"the model gives {location!r} as the path of external data, which is outside of the model's folder"
            hint = "copy the file next to the model and export the path relative to it"
            raise ModelError(what, where=where, hint=hint)

    def locate(self, model: ir.Model) -> None:
        """Map external tensors from their files, which `size` checked."""
        for value in (value for graph in graphs_of(model) for value in graph.initializers.values()):
            if isinstance(tensor := value.const_value, ir.ExternalTensor):
                value.const_value = MappedTensor(self.files[str(tensor.location)], tensor)


_KEYS = {"location", "offset", "length", "checksum", "basepath"}
DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data")
_MAX_ELEMENTS = 2**59  # of 16 bytes each, in an address space of 63 bits
_HINT = "export the model again"


def check_tensors(proto: onnx.ModelProto, folder: DataFolder) -> None:
    """Check every tensor of a model, and embed empty external tensors.

    Raises:
        ModelError: data does not match the shape, or external data is missing, short or outside `folder`.
    """
    for where, tensor in tensors(proto):
        check_tensor(tensor, where, folder)


def tensors(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every initializer and every tensor in an attribute, with its name or that of its node."""
    for graph in graphs(proto):
        yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in nodes(proto):
        for attr in node.attribute:
            found = [attr.t, *attr.tensors] if attr.HasField("t") else attr.tensors
            yield from ((tensor.name or display_name(node), tensor) for tensor in found)


def check_tensor(tensor: onnx.TensorProto, where: str, folder: DataFolder) -> None:
    """Check one tensor, whose elements may be in a file of `folder`.

    Raises:
        ModelError: as for `check_tensors`.
    """
    if tensor.data_type not in KNOWN_TYPES:
        raise ModelError(f"element type {tensor.data_type} is unknown", where=where, hint="upgrade the onnx package")
    if tensor.HasField("segment"):
        raise ModelError("tensors in segments are not supported", where=where, hint=_HINT)
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"shape {list(tensor.dims)} is negative", where=where, hint=_HINT)
    dtype, count = ir.DataType(tensor.data_type), math.prod(tensor.dims)
    if math.prod(max(dim, 1) for dim in tensor.dims) > _MAX_ELEMENTS:  # numpy limits it, even if an extent is 0
        raise ModelError(f"shape {list(tensor.dims)} is too large for any memory", where=where, hint=_HINT)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(tensor, dtype, nbytes(tensor), where, folder)
        return
    field = data_field(tensor)
    if any(len(getattr(tensor, name)) for name in DATA_FIELDS if name != field):
        raise ModelError(f"{dtype.name.lower()} data is in a field for other types", where=where, hint=_HINT)
    expected, found = _expected(tensor, dtype, count, field), len(getattr(tensor, field))
    if expected != found:
        unit = "bytes" if field == "raw_data" else "elements"
        what = f"{dtype.name.lower()}{list(tensor.dims)} needs {expected} {unit} of data, has {found}"
        raise ModelError(what, where=where, hint=_HINT)


def _expected(tensor: onnx.TensorProto, dtype: ir.DataType, count: int, field: str) -> int:
    """The length of a data field by the number of elements: the bytes of `raw_data`, the entries of any other field."""
    if field == "raw_data" or (dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4)):
        return nbytes(tensor)
    return count * (2 if "COMPLEX" in dtype.name else 1)


def data_field(tensor: onnx.TensorProto) -> str:
    """The field that holds the elements of a tensor that is not external data."""
    if tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
        return "raw_data"
    return onnx.helper.tensor_dtype_to_field(tensor.data_type)


def _check_external(tensor: onnx.TensorProto, dtype: ir.DataType, size: int, where: str, folder: DataFolder) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) < len(tensor.external_data):
        raise ModelError("external data has two entries of one key", where=where, hint="keep one")
    if unknown := sorted(set(entries) - _KEYS):
        raise ModelError(f"external data has an unknown key {unknown[0]!r}", where=where, hint=_HINT)
    if dtype == ir.DataType.STRING:
        raise ModelError("strings cannot be external data", where=where, hint=_HINT)
    if any(len(getattr(tensor, name)) for name in DATA_FIELDS):
        raise ModelError("has data of its own and external data too", where=where, hint=_HINT)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
    except ValueError as error:
        raise ModelError("offset and length of external data must be numbers", where=where, hint=_HINT) from error
    if offset < 0 or length != size:
        what = f"external data at offset {offset} of {length} bytes, but its shape needs {size}"
        raise ModelError(what, where=where, hint=_HINT)
    available = folder.size(entries.get("location", ""), where)
    if offset + size > available:
        what = f"external data {entries['location']!r} has {available} bytes, {offset + size} are needed"
        raise ModelError(what, where=where, hint="the file is truncated or of another model: copy it again")
    if size == 0:  # nothing to map; onnx_ir cannot read an empty external tensor
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = b""
