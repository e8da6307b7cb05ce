"""The cache: outcomes by key, in a folder that several processes and machines may use at the same time.

    FOLDER/CACHEDIR.TAG                 marks the folder as a cache
    FOLDER/3f/3f9a.../outcome           the SHA-256 of the second line; a line of JSON: key, report, SHA-256 of model and files
    FOLDER/3f/3f9a.../model.onnx        the result, with its external data

An entry is written to a temporary folder, which is then renamed, so that it is complete or absent; of two processes with the
same entry the first keeps it. Nothing is locked, and there is no database: SQLite, which diskcache uses, is not safe on network
file systems. Content is compared with its hash whenever it is read.

A key is the hash of everything that an outcome depends on:

- the content of the model and its external data,
- the options, with the content of the files that they name,
- the prices of the target,
- the code of layoutopt, and the versions of the libraries and of packages that extend layoutopt,
- for a dialect that only onnxruntime on CPUs runs, the processor: kernels are timed on it, or folded by it.

Times of kernels do not count themselves, since every model that is planned adds some: they are measurements of that processor.
"""

import errno
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

import layoutopt.cost_models
import layoutopt.passes
from layoutopt.cost_models import RuntimeSpec, target_texts
from layoutopt.dialects import Dialect
from layoutopt.driver.job import cost_model_of, engine_of, runtime_and_dialect
from layoutopt.driver.options import Options
from layoutopt.driver.prices import VARIABLE
from layoutopt.errors import ArgumentError
from layoutopt.files import external_files, path_text, scratch_folder
from layoutopt.kernel_times.store import Machine
from layoutopt.registry import package_of
from layoutopt.report.schema import Report

_LIBRARIES = ("highspy", "ml_dtypes", "networkx", "numpy", "onnx", "onnx-ir")
_CODE = ("*.py", "*.toml")

MODEL = "model.onnx"
"""The name of the result in an entry."""

_TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of layoutopt. See https://bford.info/cachedir/\n"
_OUTCOME = "outcome"


class Cache:
    """Outcomes by key, in a folder, which is created when the first one is kept.

    Args:
        folder: the folder.

    Raises:
        ArgumentError: it is a file, or a folder with other files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        has_tag = _is_tagged(folder)
        if os.path.lexists(folder) and not has_tag and (not folder.is_dir() or any(_visible(folder))):
            what = "is no cache of layoutopt"
            raise ArgumentError(what, where=path_text(folder), hint="name a new or an empty folder")

    def find(self, key: str, source: Path) -> tuple[Report, Path | None] | None:
        """The report, and the file of the result, None if the model stays unchanged; None without an entry.

        An entry that is damaged or another's is removed.
        """
        folder = self._folder(key)
        try:
            digest, _, line = (folder / _OUTCOME).read_bytes().partition(b"\n")
            content = json.loads(line)
            whole = hashlib.sha256(line).hexdigest().encode()
            if (whole, content["key"], content["source"]) != (digest, key, model_digest(source)):
                raise ValueError
            files = dict(content["files"])
            if any(file_digest(folder / name) != expected for name, expected in files.items()):
                raise ValueError
            return Report.model_validate(content["report"]), folder / MODEL if MODEL in files else None
        except (OSError, ValueError, KeyError, TypeError):
            with suppress(OSError):
                (folder / _OUTCOME).unlink()  # first, so that nobody finds the entry half removed
                shutil.rmtree(folder)
            return None

    def keep(self, key: str, source: Path, report: Report, save: Callable[[Path], object] | None) -> None:
        """Keep an outcome; an entry of the same key stays.

        Args:
            key: the key.
            source: the model file.
            report: the report.
            save: writes the result to a file, and external data next to it; None for no file.

        Raises:
            OSError, LayoutoptError: it cannot be written; nothing is left behind then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not _is_tagged(self.folder):
            _write_tag(self.folder)
        with scratch_folder(self.folder) as temporary:
            if save is not None:
                save(temporary / MODEL)
            files = {each.name: file_digest(each) for each in sorted(temporary.iterdir())}
            content = {
                "key": key,
                "source": model_digest(source),
                "files": files,
                "report": report.model_dump(mode="json"),
            }
            line = json.dumps(content).encode()
            with (temporary / _OUTCOME).open("xb") as file:
                file.write(hashlib.sha256(line).hexdigest().encode() + b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
            target = self._folder(key)
            target.parent.mkdir(exist_ok=True)
            if not (target / _OUTCOME).exists():  # perhaps the rest of an entry that was being removed
                shutil.rmtree(target, ignore_errors=True)
            try:
                os.rename(temporary, target)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # kept by another process
                    raise

    def _folder(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _visible(folder: Path) -> Iterator[Path]:
    """The files of a folder; without temporary folders, which another process may have begun."""
    return (each for each in folder.iterdir() if not each.name.startswith(".layoutopt-"))


def _is_tagged(folder: Path) -> bool:
    try:
        return "layoutopt" in (folder / _TAG).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _write_tag(folder: Path) -> None:
    with scratch_folder(folder) as temporary:
        (temporary / _TAG).write_text(_TAG_TEXT, encoding="utf-8")
        os.replace(temporary / _TAG, folder / _TAG)


# --- keys --------------------------------------------------------------------------------------------------


def outcome_key(
    model: Path, options: Mapping[str, Any], inputs: Sequence[Path] = (), external_data: str | None = None
) -> str:
    """The key of the outcome of `optimize`, as 64 hex digits.

    Args:
        model: the model file.
        options: all arguments of `optimize` but the model, `inputs`, and functions.
        inputs: the files with inputs.
        external_data: the name of the file for the weights of the result.

    Raises:
        OSError: a file cannot be read.
        ArgumentError, TargetError: there is no such target, runtime or dialect.
        LayoutoptError: the engine of the runtime cannot be used.
    """
    is_native, engine = (
        needs_this_machine(options),
        engine_of(_runtime_and_dialect(options)[0], Options(model, **options)),
    )
    profile, libraries = options.get("profile"), options.get("custom_ops") or ()
    libraries = [libraries] if isinstance(libraries, str | os.PathLike) else libraries
    files = [] if profile is None else [profile], libraries, inputs
    parts = {
        "model": model_digest(model),
        "options": {name: value for name, value in options.items() if name not in ("profile", "custom_ops")},
        "external_data": external_data,
        "files": [[file_digest(Path(each)) for each in some] for some in files],
        "target": target_texts(cost_model_of(options["target"])),
        "software": software(),
        "machine": asdict(Machine.current(options.get("threads", 1))) if is_native else None,
        "engine": engine.version if engine is not None else None,
        "is_measured": is_native and not os.environ.get(VARIABLE),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def needs_this_machine(options: Mapping[str, Any]) -> bool:
    """Whether a result depends on this machine, because its runtime is a program on it in which kernels are timed.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """
    runtime, dialect = _runtime_and_dialect(options)
    return dialect.is_native or bool(runtime.engine)


def _runtime_and_dialect(options: Mapping[str, Any]) -> tuple[RuntimeSpec, Dialect]:
    return runtime_and_dialect(options.get("runtime"), options.get("dialect"), cost_model_of(options["target"]))


def model_digest(model: Path) -> str:
    """A SHA-256 of a model file and its external data, with their names, as hex digits; files are read in blocks."""
    files = {os.path.realpath(each): each for each in (model, *external_files(model))}
    names = sorted(os.path.relpath(each, model.parent) for each in files.values() if each != model)
    digests = [file_digest(model), *(name + file_digest(model.parent / name) for name in names)]
    return hashlib.sha256("\n".join(digests).encode("utf-8", "surrogateescape")).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, which is read in blocks, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def software() -> dict[str, str]:
    """The code of layoutopt and of its extensions, and the versions of libraries, as texts by name."""
    found = {name: version(name) for name in _LIBRARIES}
    groups = [group for group in entry_points().groups if group.startswith("layoutopt.")]
    for entry in (entry for group in groups for entry in entry_points(group=group)):
        distribution = entry.dist.version if entry.dist is not None else ""
        found[f"{entry.group}: {entry.name} = {entry.value}"] = f"{package_of(entry)} {distribution}"
    return found | {
        "layoutopt": _code_digest(),
        "onnxruntime": Machine.current().runtime,
        "python": platform.python_version(),
        "architecture": platform.machine(),
    }


def _code_digest() -> str:
    """The SHA-256 of the code and the tables of layoutopt, so that a changed checkout has other keys."""
    folders = [Path(str(module.__file__)).parent for module in (layoutopt, layoutopt.passes, layoutopt.cost_models)]
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted({each for pattern in _CODE for each in folder.rglob(pattern)}):
            found.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return found.hexdigest()
