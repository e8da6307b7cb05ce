"""External data: the folders in which it may be stored, and tensors that map it.

A location in a model file is a path relative to the folder of that file, and must be inside of it. The file at that path may
be a symbolic link, because a model hub stores a model as links into one cache folder:

    snapshots/1a2b/model.onnx      -> ../../blobs/93f0...
    snapshots/1a2b/model.onnx_data -> ../../blobs/77c1...

ONNX Runtime accepts data whose real path is below the folder of the model's path or below the folder of the model's real
path. So does layoutopt. Hard links are plain files.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from layoutopt.errors import ModelError


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folders that may contain the external data of a model.

    Attributes:
        path: the folder that locations are relative to.
        roots: the real paths of the folders that data must be below.
    """

    path: Path
    roots: tuple[str, ...]

    @classmethod
    def of_file(cls, model: Path) -> "DataFolder":
        """The folder of a model file, and the folder of the file that it is a symbolic link to."""
        path = Path(os.path.abspath(model))
        real = os.path.realpath(path)
        roots = dict.fromkeys([os.path.realpath(path.parent), os.path.dirname(real)])
        return cls(path.parent, tuple(roots))

    @classmethod
    def current(cls) -> "DataFolder":
        """The current folder, for a model that is no file."""
        return cls(Path.cwd(), (os.path.realpath(Path.cwd()),))

    def size(self, location: str, where: str) -> int:
        """The size in bytes of a data file.

        Args:
            location: the path in the model file.
            where: the name of the tensor, for errors.

        Raises:
            ModelError: the path is outside of the folder, the file is a link to another folder, is missing or is not regular.
        """
        self._check_location(location, where)
        path = self.path / location
        try:
            info = path.stat()
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            what = f"external data {location!r} is missing" if is_missing else f"cannot read {location!r}"
            raise ModelError(what, where=where, hint=f"copy it to {self.path}") from error
        real = os.path.realpath(path)
        if not any(real.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots):
            what = f"external data {location!r} is a symbolic link to {real!r}, outside of the model's folder"
            hint = "copy the file itself next to the model, or open the model through its own link"
            raise ModelError(what, where=where, hint=hint)
        if not path.is_file():
            what = f"external data {location!r} is not a plain file"
            raise ModelError(what, where=where, hint="copy the file itself next to the model")
        return info.st_size

    def _check_location(self, location: str, where: str) -> None:
        is_below = bool(location) and "\0" not in location and not os.path.isabs(location)
        if not is_below or os.path.normpath(location).split(os.sep)[0] in ("..", "."):
            what = f"the model gives {location!r} as the path of external data, which is outside of the model's folder"
            hint = "copy the file next to the model and export the path relative to it"
            raise ModelError(what, where=where, hint=hint)

    def open_linked(self, model: ir.Model) -> None:
        """Replace tensors in linked files by tensors that map the real file, because onnx_ir refuses links; `size` checked it.

        onnx_ir refuses files with several hard links as well. It checks nothing where a tensor has no base folder.
        """
        for value in (value for graph in model.graphs() for value in graph.initializers.values()):
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and self._is_linked(self.path / tensor.location):
                value.const_value = ir.ExternalTensor(
                    os.path.realpath(self.path / tensor.location),
                    tensor.offset,
                    tensor.length,
                    tensor.dtype,
                    shape=tensor.shape,
                    name=tensor.name,
                    doc_string=tensor.doc_string,
                    metadata_props=dict(tensor.metadata_props),
                )

    def _is_linked(self, path: Path) -> bool:
        """Whether onnx_ir would refuse a file."""
        inside = os.path.realpath(path).startswith(os.path.realpath(self.path).rstrip(os.sep) + os.sep)
        return not inside or path.stat().st_nlink > 1
