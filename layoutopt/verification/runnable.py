"""A model that onnxruntime can load: a file, or a serialised message whose weights are internal or external data.

Edited copies of a model (more outputs, perturbed weights) are messages. Where the weights are external data, the message
refers to the original's files, so that no weight is copied and onnxruntime maps all of them. A model that is too large for the
available memory is run part by part (`parts`).

Two edits make models comparable on this machine: native operators of another machine are replaced by their definitions, which
are exact (`runtime.definitions`), and operators that draw random numbers get a seed, with which they draw the same sequence in
every session.
"""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir
from msgspec.structs import replace

from layoutopt import onnx_io
from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.onnx_io.messages import nodes
from layoutopt.onnx_io.serialize import weight_bytes
from layoutopt.record import Record
from layoutopt.runtime.definitions import DEFINITIONS, define
from layoutopt.runtime.engines import Engine
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.session import DATA_FOLDER, MAX_BYTES_IN_MEMORY, Session, inference_session
from layoutopt.verification import edits
from layoutopt.verification.parts import PartedSession, external_tensors

Source: TypeAlias = bytes | str | PathLike[str]
AnySession: TypeAlias = "Session | PartedSession | EngineSession"

MAX_PREPACKED_BYTES = 500_000_000
"""Bytes of weights above which sessions do not prepack, which copies every weight of a matrix product, and have no arena."""

CRASHING_OPTIMIZERS = ("MatmulTransposeFusion",)
"""Optimisers of onnxruntime 1.31 that crash on some models with float16: a Transpose of the batch axis in front of a MatMul
whose other operand has fewer axes. They are disabled for models with float16."""

RANDOM_OPS = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
"""The operators of ONNX that draw random numbers."""

_SEED = 1.0


class Runnable(Record):
    """A model for onnxruntime.

    Attributes:
        source: a file, or the bytes of a message.
        folder: the folder of a message's external data; None if it has none.
        has_float16: whether a tensor has the type float16.
        is_large: whether sessions leave weights mapped instead of prepacking them, and keep no memory between runs.
        trace: the prefix of the files to which sessions at the default optimisation level write a trace of their first run;
            None for no traces. Edited copies write none.
        is_parted: whether sessions hold one part of the model at a time, and are not optimised.
        engine: the program that runs it; None for onnxruntime.
    """

    source: bytes | str
    folder: Path | None = None
    has_float16: bool = False
    is_large: bool = False
    trace: Path | None = None
    is_parted: bool = False
    engine: Engine | None = None

    @classmethod
    def of(cls, source: Source) -> "Runnable":
        """A file, or the bytes of a message without external data, as a Runnable."""
        model = cls(source if isinstance(source, bytes) else fspath(source))
        try:
            message = model.message()
            size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
        except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
            return model
        for tensor in external_tensors(message):
            size += sum(int(entry.value) for entry in tensor.external_data if entry.key == "length")
        return replace(model, has_float16=edits.has_float16(message), is_large=size > MAX_PREPACKED_BYTES)

    def message(self) -> onnx.ModelProto:
        """The ModelProto, without its external data."""
        if isinstance(self.source, bytes):
            return onnx.load_from_string(self.source)
        return onnx.load(self.source, load_external_data=False)

    def edited(self, message: onnx.ModelProto) -> "Runnable":
        """An edited message as a model that uses the same weights."""
        folder = Path(self.source).absolute().parent if isinstance(self.source, str) else self.folder
        if folder is not None:
            folder = _resolve_links(message, folder) if any(external_tensors(message)) else None
        return replace(self, source=bytes(message.SerializeToString()), folder=folder, trace=None)

    def session(self, *, is_optimised: bool = True, threads: int | None = None) -> AnySession:
        """A session at onnxruntime's default optimisation level, or without any optimisation, or one in another engine."""
        if self.engine is not None:
            return EngineSession(self, self.engine, threads or 1)
        if self.is_parted:
            mapped = self.edited(self.message())
            return PartedSession(mapped.message(), mapped.folder, prepacks=not self.is_large)
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

    def timed_session(self, threads: int) -> AnySession:
        """A session with default options but for the number of threads."""
        if self.engine is not None:
            return EngineSession(self, self.engine, threads)
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


class EngineSession:
    """A model in another engine than onnxruntime, with the interface of `Session`."""

    def __init__(self, model: Runnable, engine: Engine, threads: int) -> None:
        graph = model.message().graph
        constants = {each.name for each in graph.initializer}
        self._inputs = [each for each in graph.input if each.name not in constants]
        self._outputs = list(graph.output)
        self._loaded = engine.load(model.source, threads)

    def get_inputs(self) -> Sequence[Any]:
        """The inputs without an initializer, with their names."""
        return self._inputs

    def get_outputs(self) -> Sequence[Any]:
        """The outputs, with their names."""
        return self._outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], seconds: float | None = None) -> list[Any]:
        """The outputs with the given names, which are valid until the next run; no limit of the time is kept."""
        del seconds
        outputs = self._loaded.run(feeds)
        if names is None:
            return list(outputs)
        found = dict(zip((each.name for each in self._outputs), outputs, strict=True))
        return [found[name] for name in names]

    def run_all(
        self, names: Sequence[str] | None, feeds: Sequence[Mapping[str, Any]], seconds: float | None = None
    ) -> list[list[Any]]:
        """The outputs for each of several feeds."""
        return [list(map(np.copy, self.run(names, feed, seconds))) for feed in feeds]


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


def as_runnable(model: onnx_ir.Model, path: Path, source: str | None = None) -> Runnable:
    """A model as bytes, or as a file whose weights can be mapped if they exceed `MAX_BYTES_IN_MEMORY`.

    Args:
        model: the model.
        path: the file that is written if the weights are large.
        source: the file that the model was read from, which is used as it is; None if there is none.
    """
    if source is not None:
        return Runnable.of(source)
    if weight_bytes(model) <= MAX_BYTES_IN_MEMORY:
        return Runnable.of(onnx_io.to_bytes(model))
    onnx_io.write(model, path, external_data=f"{path.name}.data")
    return Runnable.of(path)


def mappable(path: str | None) -> str | None:
    """The file, unless it contains large weights, which sessions cannot map there."""
    return path if path is not None and Path(path).stat().st_size <= MAX_BYTES_IN_MEMORY else None


class RunnableCopies:
    """The models of one rewrite as Runnables, each of which is serialised once.

    Args:
        folder: the folder for the files of large models, which has to exist as long as the Runnables are used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[int, tuple[onnx_ir.Model, Runnable]] = {}  # by `id`: models are not hashable by content
        self._num_files = 0

    def of(self, model: onnx_ir.Model, source: str | None = None) -> Runnable:
        """A model, which was read from `source`, as a Runnable; if it changes afterwards, `forget` it."""
        if id(model) not in self._copies:
            self._num_files += 1
            path = self._folder / f"copy{self._num_files}.onnx"
            self._copies[id(model)] = (model, as_runnable(model, path, source))
        return self._copies[id(model)][1]

    def forget(self, model: onnx_ir.Model) -> None:
        """Forget the copy of a model that has changed."""
        self._copies.pop(id(model), None)


def with_definitions(model: Runnable) -> tuple[Runnable, int]:
    """The model with definitions of its native operators, and the channels of their blocks; 0 if this machine's kernels run."""
    try:
        message = model.message()
    except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
        return model, 0
    block = packed_block(node.name for node in message.graph.node)
    if block is None or block == blocked_channels():
        return model, 0
    if not {node.op_type for node in nodes(message) if node.domain == BLOCKED_DOMAIN} <= set(DEFINITIONS):
        return model, block  # of another version of layoutopt; its block-size check refuses to run
    define(message, block)
    return model.edited(message), block


def with_seeds(model: Runnable) -> Runnable:
    """The model with a seed for every operator that draws random numbers."""
    message = model.message()
    for node in nodes(message):
        if node.op_type in RANDOM_OPS and not node.domain and all(each.name != "seed" for each in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("seed", _SEED))
    return model.edited(message)
