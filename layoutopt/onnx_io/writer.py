"""Writes a model atomically: to temporary files next to the target, which are then renamed.

External data is renamed first, to a name that no existing model refers to, the model last. So at every moment, even if the
process is killed, the target is the old model with the old weights or the new model with the new ones. A model that replaces
its predecessor never changes the predecessor's external data: other weights get a name with a hash of their content.
"""

import errno
import filecmp
import os
import re
import shutil
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir

from layoutopt.errors import OutputError
from layoutopt.files import (
    MARK,
    FileKind,
    Overwrite,
    Staging,
    check_writable,
    external_files,
    is_same_file,
    models_with_weights,
    output_errors,
    result_mark,
)
from layoutopt.onnx_io.mapping import MappedTensor
from layoutopt.onnx_io.serialize import IN_ONE_FILE, weight_bytes, weights, write_message, write_tensor
from layoutopt.onnx_io.vocabulary import external_tensor
from layoutopt.record import Record


class WrittenFiles(Record):
    """The files of a model that was written.

    Attributes:
        model: the model.
        weights: its external data, if it has any.
        unused: external data of the model that was replaced, which no model in the folder refers to any more.
    """

    model: Path
    weights: Path | None = None
    unused: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The model and its external data."""
        return (self.model,) if self.weights is None else (self.model, self.weights)


def write(
    model: ir.Model,
    path: str | os.PathLike[str],
    external_data: str | None = None,
    *,
    source: str | os.PathLike[str] | None = None,
    reads: Sequence[Path] = (),
    force: bool = False,
) -> WrittenFiles:
    """Write a model; on any failure nothing is left behind and nothing is overwritten.

    The target may be the file that the model was read from.

    Args:
        model: the model; unchanged afterwards.
        path: the file; an existing result of `source` is replaced.
        external_data: the name of a file in the same folder for weights of 1 KiB and more. By default
            weights of up to 1.9 GB are in the model file, larger ones in a file with the model's name and `.data`. If the
            existing model refers to that file, other weights get a name with a hash.
        source: the file that the model was read from.
        reads: other files that have been read, which are never replaced.
        force: replace an existing file that is no result of `source`, and external data of other models in the folder.

    Raises:
        OutputError: the folder does not exist or is not writable, the target is no file or must not be replaced
            (`layoutopt.files.overwrite`), there is no space.
    """
    path = Path(path)
    overwrite = Overwrite(() if source is None else (Path(source),), path, force, tuple(reads))
    check_output(path, external_data, overwrite)
    name = external_data or _needed_name(model, path)
    with output_errors(path), Staging(path.parent) as staging:
        replaced = external_files(path)
        renames: list[tuple[BinaryIO, Path]] = []
        is_new = False
        placed: dict[ir.Value, ir.ExternalTensor] = {}
        if name is not None:
            file, target = staging.open(), path.with_name(name)
            tensors = place_weights(model, file)
            if not (force and external_data is not None and not _is_any(target, replaced)):
                target = _free_name(file, target)
            renames.append((file, target))
            is_new = not os.path.lexists(target)
            placed = {
                value: external_tensor(tensor, target.name, offset, name=value.name or "")
                for value, (tensor, offset) in tensors.items()
            }
        message = staging.open()
        renames.append((message, path))
        _map(model, [target for _, target in renames])
        write_message(model, message, placed)
        message.write(_mark(source, path))
        if is_new and os.path.lexists(renames[0][1]):
            raise FileExistsError(errno.EEXIST, "another process has written external data of this name")
        staging.commit(*renames)
        needed = external_files(Path(source)) if source is not None and replaced else []
        written = [target for _, target in renames[:-1]]
        return WrittenFiles(path, written[0] if written else None, _unused(replaced, [*needed, *written]))


def copy(
    content: str | os.PathLike[str] | onnx.ModelProto,
    path: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    reads: Sequence[Path] = (),
    force: bool = False,
) -> WrittenFiles:
    """Write the bytes of a file or of a message to another file, atomically.

    Args:
        content: the file or message.
        path: the file to write.
        source: the file that the model was read from; if it is not `content`, the mark of its result is added.
        reads, force: as for `write`.

    Raises:
        OutputError: as for `write`.
    """
    path = Path(path)
    Overwrite(() if source is None else (Path(source),), path, force, tuple(reads)).check(path, FileKind.MODEL)
    if not isinstance(content, onnx.ModelProto) and path.exists() and path.samefile(content):
        return WrittenFiles(path)
    with output_errors(path), Staging(path.parent) as staging:
        file, mark = staging.open(), _mark(source, path)
        if isinstance(content, onnx.ModelProto):
            file.write(content.SerializeToString(deterministic=True))
        else:
            with Path(content).open("rb") as original:
                shutil.copyfileobj(original, file)
            mark = b"" if source is not None and Path(source).samefile(content) else mark
        file.write(mark)
        replaced = external_files(path)
        staging.commit((file, path))
        return WrittenFiles(path, None, _unused(replaced, []))


def _mark(source: str | os.PathLike[str] | None, path: Path) -> bytes:
    """The metadata with the mark of a result, as bytes that are appended to its message; empty without a source."""
    if source is None:
        return b""
    entry = onnx.StringStringEntryProto(key=MARK, value=result_mark(Path(source), path.parent))
    return bytes(onnx.ModelProto(metadata_props=[entry]).SerializeToString())


def _unused(replaced: Sequence[Path], needed: Sequence[Path]) -> tuple[Path, ...]:
    """The external data of a model that was replaced, without files that are needed or that a model in their folder uses."""
    return tuple(each for each in replaced if not _is_any(each, needed) and not any(models_with_weights(each)))


def _needed_name(model: ir.Model, path: Path) -> str | None:
    """The name of external data for a model that is too large for one file."""
    return default_name(path) if weight_bytes(model) > IN_ONE_FILE else None


def _is_any(path: Path, others: Sequence[Path]) -> bool:
    return any(is_same_file(path, each) for each in others)


def _map(model: ir.Model, targets: Sequence[Path]) -> None:
    """Map the files with tensors that are about to be replaced or removed, since a mapping remains valid without the name."""
    for _, tensor in weights(model):
        if isinstance(tensor, ir.ExternalTensor) and _is_any(Path(tensor.path), targets):
            tensor.numpy()


def has_external_data(model: ir.Model) -> bool:
    """Whether elements of the model are in files next to it."""
    return any(
        isinstance(tensor, ir.ExternalTensor) or (isinstance(tensor, MappedTensor) and not tensor.file.is_model)
        for _, tensor in weights(model)
    )


_EXTERNAL_FROM = 1024  # bytes; smaller tensors stay in the model
_PAGE = 4096  # bytes; the alignment of tensors in external data, so that they can be mapped
_LINE = 64  # the alignment of tensors smaller than a page
_PIECE = 1 << 26  # bytes that are hashed in one call
_DIGITS = 16  # of a hash in a name


def default_name(model: Path) -> str:
    """The default name of the external data of a model."""
    name = os.fsencode(model.name).decode("utf-8", "replace").replace("\N{REPLACEMENT CHARACTER}", "_")
    return f"{name}.data"


def check_output(model: Path, name: str | None, overwrite: Overwrite) -> None:
    """Check that a model can be written, and external data of this name.

    The name may be that of a file to which the existing model refers, also with a hash in it: then the weights get another
    name.

    Raises:
        OutputError: one cannot be written, must not be replaced, or the name is no plain file name in UTF-8.
    """
    overwrite.check(model, FileKind.MODEL)
    if name is None:
        return
    if name in ("", ".", "..") or Path(name).name != name or is_same_file(model, model.with_name(name)):
        raise OutputError("not a file name for external data", where=name, hint="name a file next to the model")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        hint = "name another file: ONNX stores the name as UTF-8"
        raise OutputError("the name of external data is not UTF-8", where=name, hint=hint) from error
    target = model.with_name(name)
    if any(is_same_file(each, target) or _is_hashed(each, target) for each in external_files(model)):
        check_writable(target)
    else:
        overwrite.check(target, FileKind.WEIGHTS)


def place_weights(model: ir.Model, file: BinaryIO) -> dict[ir.Value, tuple[ir.TensorProtocol, int]]:
    """Write the large initializers one after the other, shared tensors once; returns their tensors and offsets."""
    offsets: dict[int, int] = {}
    placed = {}
    for value, tensor in weights(model):
        if tensor.nbytes < _EXTERNAL_FROM or tensor.dtype == ir.DataType.STRING:
            continue
        if id(tensor) not in offsets:
            start = file.tell()
            file.write(bytes(-start % (_PAGE if tensor.nbytes >= _PAGE else _LINE)))
            offsets[id(tensor)] = file.tell()
            write_tensor(tensor, file)
        placed[value] = (tensor, offsets[id(tensor)])
    return placed


def _free_name(file: BinaryIO, requested: Path) -> Path:
    """The path for a temporary file of weights: with a hash of the content in its name if another file is at `requested`."""
    file.flush()
    if not os.path.lexists(requested) or (requested.is_file() and filecmp.cmp(requested, file.name, shallow=False)):
        return requested
    return requested.with_name(f"{requested.stem}-{_hash(file)}{requested.suffix}")


def _is_hashed(path: Path, requested: Path) -> bool:
    """Whether a path has the form that `_free_name` derives from `requested` with a hash."""
    pattern = rf"{re.escape(requested.stem)}-[0-9a-f]{{{_DIGITS}}}{re.escape(requested.suffix)}"
    return re.fullmatch(pattern, path.name) is not None


def _hash(file: BinaryIO) -> str:
    """The hash of the content of a file that names contain."""
    file.seek(0)
    hashed = blake2b(digest_size=_DIGITS // 2)
    while piece := file.read(_PIECE):
        hashed.update(piece)
    return hashed.hexdigest()
