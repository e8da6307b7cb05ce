"""Write a model whole or not at all: into temporary files next to the target, which then take its name."""

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
import onnx_ir as ir

from layoutopt.errors import OutputError
from layoutopt.onnx_io.serialize import IN_ONE_FILE, to_bytes, weights

_EXTERNAL_FROM = 1024  # bytes; smaller tensors stay in the model
_PAGE = 4096  # bytes; the alignment of tensors in external data, so that they can be mapped
_LINE = 64  # the same for tensors below a page

_REASONS = {
    errno.ENOENT: ("the folder does not exist", "create it first"),
    errno.ENOTDIR: ("the folder is a file", "name another folder"),
    errno.EACCES: ("no permission to write here", "choose another folder or change its permissions"),
    errno.EPERM: ("no permission to write here", "choose another folder or change its permissions"),
    errno.EROFS: ("the file system is read-only", "choose another folder"),
    errno.ENOSPC: ("no space left on the device", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the file is larger than the file system or a limit allows", "choose another folder"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
}


def write(model: ir.Model, path: str | os.PathLike[str], external_data: str | None = None) -> None:
    """Write a model; on any failure nothing is left behind and nothing is overwritten.

    The target may be the file that the model was read from, or its external data the one that it maps.

    Args:
        model: the model; unchanged afterwards.
        path: the file; an existing one is replaced, a symbolic link to one too.
        external_data: the name of a file in the same folder for weights of 1 KiB and more. By default all is
            in one file, up to the 1.9 GB that fit; beyond that it is the model's name with `.data` behind.

    Raises:
        OutputError: the folder does not exist or is not writable, the target is no file, there is no space.
    """
    path = Path(path)
    if external_data is None and sum(tensor.nbytes for _, tensor in weights(model)) > IN_ONE_FILE:
        external_data = f"{path.name}.data"
    try:
        _check_target(path)
        if external_data is not None:
            _check_name(path, external_data)
        with _Staging(path.parent) as staging:
            external = (
                {} if external_data is None else _write_weights(model, staging.open(external_data), external_data)
            )
            staging.open(path.name).write(to_bytes(model, external))
            _keep_mapped(model, path.with_name(external_data or path.name))
            staging.commit()
    except OSError as error:
        what, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), "choose another path"))
        raise OutputError(what, where=str(path), hint=hint) from error


def _check_target(path: Path) -> None:
    if path.is_dir():
        raise OutputError("is a folder", where=str(path), hint="name a file in it")
    if path.exists() and not path.is_file():
        raise OutputError("is not a regular file", where=str(path), hint="name another one")


def _check_name(path: Path, name: str) -> None:
    if name in ("", ".", "..") or Path(name).name != name or name == path.name:
        raise OutputError("not a file name for external data", where=name, hint="name a file next to the model")
    _check_target(path.with_name(name))


def _write_weights(model: ir.Model, file: BinaryIO, location: str) -> dict[ir.Value, ir.ExternalTensor]:
    """Write the large initializers one after the other, shared tensors once; returns where they are."""
    offsets: dict[int, int] = {}
    placed = {}
    for value, tensor in weights(model):
        if tensor.nbytes < _EXTERNAL_FROM or tensor.dtype == ir.DataType.STRING:
            continue
        if id(tensor) not in offsets:
            start = file.tell()
            file.write(bytes(-start % (_PAGE if tensor.nbytes >= _PAGE else _LINE)))
            offsets[id(tensor)] = file.tell()
            _write_tensor(tensor, file)
        placed[value] = ir.ExternalTensor(
            location,
            offsets[id(tensor)],
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
    return placed


def _write_tensor(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    if isinstance(tensor, ir.ExternalTensor | ir.LazyTensor | ir.Tensor):
        tensor.tofile(file)  # in pieces
    else:
        file.write(tensor.tobytes())


def _keep_mapped(model: ir.Model, target: Path) -> None:
    """Map the file that is about to be replaced, if tensors are in it: a mapping outlives the name."""
    for _, tensor in weights(model):
        if isinstance(tensor, ir.ExternalTensor) and Path(tensor.path).resolve() == target.resolve():
            tensor.numpy()


class _Staging:
    """Temporary files in a folder that take their names together, in the order in which they were opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[tuple[BinaryIO, Path, Path]] = []

    def __enter__(self) -> "_Staging":
        return self

    def open(self, name: str) -> BinaryIO:
        """A new file that will have this name."""
        temporary = self._folder / f".{name[:100]}.{secrets.token_hex(4)}.tmp"
        file = temporary.open("xb")
        self._files.append((file, temporary, self._folder / name))
        return file

    def commit(self) -> None:
        """Let all files take their names, once they are on the disk."""
        for file, temporary, target in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if target.exists():
                shutil.copymode(target, temporary)
        for _, temporary, target in self._files:
            os.replace(temporary, target)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file, temporary, _ in self._files:
            with suppress(OSError):  # closing writes what is still buffered
                file.close()
            temporary.unlink(missing_ok=True)


def copy(source: str | os.PathLike[str] | onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write the bytes of a file under another name, or those of a message, whole or not at all.

    Raises:
        OutputError: as `write` does.
    """
    path = Path(path)
    try:
        _check_target(path)
        if isinstance(source, onnx.ModelProto):
            with _Staging(path.parent) as staging:
                staging.open(path.name).write(source.SerializeToString(deterministic=True))
                staging.commit()
            return
        if path.exists() and path.samefile(source):
            return
        with _Staging(path.parent) as staging, Path(source).open("rb") as original:
            shutil.copyfileobj(original, staging.open(path.name))
            staging.commit()
    except OSError as error:
        what, hint = _REASONS.get(error.errno or 0, ((error.strerror or str(error)).lower(), "choose another path"))
        raise OutputError(what, where=str(path), hint=hint) from error


def has_external_data(model: ir.Model) -> bool:
    """Whether elements of the model are in files next to it."""
    return any(isinstance(tensor, ir.ExternalTensor) for _, tensor in weights(model))
