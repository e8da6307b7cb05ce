"""Keys of outcomes: hashes of everything that an outcome depends on.

- the content of the model and its external data,
- the options, with the content of the files that they name,
- the prices of the target,
- the code of layoutopt, and the versions of the libraries and of packages that extend layoutopt,
- for a dialect that only onnxruntime on CPUs runs, the processor: kernels are timed on it, or folded by it.

Times of kernels do not count themselves, since every model that is planned adds some: they are measurements of that processor.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import layoutopt.cost_models
import layoutopt.passes
from layoutopt.cost import CostModel, MultiTargetCostModel
from layoutopt.cost_models import RooflineModel
from layoutopt.driver.job import cost_model_of, runtime_and_dialect
from layoutopt.driver.prices import VARIABLE
from layoutopt.files import external_files
from layoutopt.kernel_times import Machine
from layoutopt.registry import package_of

_LIBRARIES = ("highspy", "ml_dtypes", "networkx", "numpy", "onnx", "onnx-ir")
_CODE = ("*.py", "*.toml")
_TIMED = ("measure", "calibrate")


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
    """
    is_native = needs_this_machine(options)
    profile, libraries = options.get("profile"), options.get("custom_ops") or ()
    libraries = [libraries] if isinstance(libraries, str | os.PathLike) else list(libraries)
    parts = {
        "model": model_digest(model),
        "options": {name: value for name, value in options.items() if name not in ("profile", "custom_ops")},
        "external_data": external_data,
        "profile": file_digest(Path(profile)) if profile is not None else None,
        "custom_ops": [file_digest(Path(each)) for each in libraries],
        "inputs": [file_digest(each) for each in inputs],
        "target": _target(cost_model_of(options["target"])),
        "software": software(),
        "machine": asdict(Machine.current(options.get("threads", 1))) if is_native else None,
        "is_measured": is_native and not os.environ.get(VARIABLE),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def needs_this_machine(options: Mapping[str, Any]) -> bool:
    """Whether a result depends on the processor of this machine, because its dialect is that of onnxruntime on CPUs.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """
    target = cost_model_of(options["target"])
    return runtime_and_dialect(options.get("runtime"), options.get("dialect"), target)[1].is_native


def is_timed(options: Mapping[str, Any]) -> bool:
    """Whether kernels or models are timed on this machine, so that other work at the same time would disturb the result.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """
    is_requested = any(options.get(name) for name in _TIMED) and not os.environ.get(VARIABLE)
    return is_requested and needs_this_machine(options)


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
        "onnxruntime": Machine.current().onnxruntime,
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


def _target(model: CostModel) -> list[str]:
    """The names and the prices of a target, or of several; of a cost model of another package the name."""
    if isinstance(model, MultiTargetCostModel):
        return [text for each in model.models for text in _target(each)]
    return [model.name, model.spec.model_dump_json() if isinstance(model, RooflineModel) else type(model).__qualname__]
