"""A model that onnxruntime can load: a file, or a serialised message whose weights are internal or external data.

Edited copies of a model (more outputs, perturbed weights) are messages. Where the weights are external data, the message
refers to the original's files, so that no weight is copied and onnxruntime maps all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import onnx

from layoutopt.onnx_io.messages import graphs, nodes
from layoutopt.runtime.session import DATA_FOLDER, Session, inference_session
from layoutopt.verification import upcast

Source: TypeAlias = bytes | str | PathLike[str]

MAX_PREPACKED_BYTES = 500_000_000
"""Bytes of weights above which sessions do not prepack, which copies every weight of a matrix product, and have no arena."""

CRASHING_OPTIMIZERS = ("MatmulTransposeFusion",)
"""Optimisers of onnxruntime 1.31 that crash on some models with float16: a Transpose of the batch axis in front of a MatMul
whose other operand has fewer axes. They are disabled for models with float16."""


@dataclass(frozen=True, slots=True)
class Runnable:
    """A model for onnxruntime.

    Attributes:
        source: a file, or the bytes of a message.
        folder: the folder of a message's external data; None if it has none.
        has_float16: whether a tensor has the type float16.
        is_large: whether sessions leave weights mapped instead of prepacking them, and keep no memory between runs.
        trace: the prefix of the files to which sessions at the default optimisation level write a trace of their first run;
            None for no traces. Edited copies write none.
    """

    source: bytes | str
    folder: Path | None = None
    has_float16: bool = False
    is_large: bool = False
    trace: Path | None = None

    @classmethod
    def of(cls, source: "Source | Runnable", has_float16: bool | None = None) -> "Runnable":
        """The model as a Runnable.

        Args:
            source: a file, or the bytes of a message without external data.
            has_float16: whether a tensor has the type float16; if None, the model is searched.
        """
        if isinstance(source, Runnable):
            return source
        given = source if isinstance(source, bytes) else fspath(source)
        try:
            is_half = upcast.has_float16(given) if has_float16 is None else has_float16
            size = len(given) if isinstance(given, bytes) else _file_bytes(given)
        except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
            return cls(given)
        return cls(given, None, is_half, size > MAX_PREPACKED_BYTES)

    def message(self) -> onnx.ModelProto:
        """The ModelProto, without its external data."""
        if isinstance(self.source, bytes):
            return onnx.load_from_string(self.source)
        return onnx.load(self.source, load_external_data=False)

    def edited(self, message: onnx.ModelProto) -> "Runnable":
        """An edited message as a model that uses the same external data."""
        folder = Path(self.source).absolute().parent if isinstance(self.source, str) else self.folder
        folder = _resolve_links(message, folder) if folder is not None and any(external_tensors(message)) else None
        return Runnable(bytes(message.SerializeToString()), folder, self.has_float16, self.is_large)

    def session(self, *, is_optimised: bool = True, threads: int | None = None) -> Session:
        """A session at onnxruntime's default optimisation level, or without any optimisation."""
        disabled: Sequence[str] = CRASHING_OPTIMIZERS if is_optimised and self.has_float16 else ()
        return Session(
            self.source,
            is_optimised=is_optimised,
            threads=threads,
            disabled=disabled,
            folder=self.folder,
            prepacks=not self.is_large,
            has_arena=not self.is_large,
            trace=self.trace if is_optimised else None,
        )

    def timed_session(self, threads: int) -> Session:
        """A session with onnxruntime's default options but for the number of threads."""
        disabled: Sequence[str] = CRASHING_OPTIMIZERS if self.has_float16 else ()
        return Session(self.source, threads=threads, disabled=disabled, folder=self.folder, polls=True)

    def save_optimised(self, path: Path, config: Mapping[str, str], threads: int, disabled: Sequence[str] = ()) -> None:
        """Write the form after onnxruntime's optimiser at its default level.

        Args:
            path: the file.
            config: entries of the session's configuration.
            threads: threads of onnxruntime.
            disabled: names of optimisers to disable.
        """
        folder = {} if self.folder is None else {DATA_FOLDER: str(self.folder)}
        disabled = (*disabled, *(CRASHING_OPTIMIZERS if self.has_float16 else ()))
        inference_session(self.source, threads=threads, disabled=disabled, saved=path, config={**config, **folder})


def _resolve_links(message: onnx.ModelProto, folder: Path) -> Path:
    """The real folder of the external data; the message is edited to refer to the files by their names there.

    For a message in memory onnxruntime refuses external data behind symbolic links that lead out of the folder, as in the
    cache of a model hub. If the data is in several folders, nothing is changed.
    """
    entries = [
        entry for tensor in external_tensors(message) for entry in tensor.external_data if entry.key == "location"
    ]
    real: dict[str, Path] = {entry.value: (folder / entry.value).resolve() for entry in entries}
    parents: set[Path] = {path.parent for path in real.values()}
    if len(parents) != 1:
        return folder
    for entry in entries:
        entry.value = real[entry.value].name
    (parent,) = parents
    return parent


def external_tensors(message: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a message that are stored as external data."""
    initializers = (tensor for graph in graphs(message) for tensor in graph.initializer)
    constants = (attr.t for node in nodes(message) for attr in node.attribute if attr.HasField("t"))
    for tensor in (*initializers, *constants):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _file_bytes(path: str) -> int:
    """Bytes of a model file and its external data."""
    size = Path(path).stat().st_size
    for tensor in external_tensors(onnx.load(path, load_external_data=False)):
        size += sum(int(entry.value) for entry in tensor.external_data if entry.key == "length")
    return size


__all__ = ["MAX_PREPACKED_BYTES", "Runnable", "Source"]
