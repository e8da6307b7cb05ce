"""Lookup of targets by name: built-in targets, this machine, target files, and cost models of other packages.

A built-in target is a file `targets/<name>.toml`. Files whose names begin with an underscore contain the common part of
several targets; they are inherited and cannot be loaded.
"""

import platform
from difflib import get_close_matches
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from layoutopt.cost import CostModel, Device, DeviceLink, MultiTargetCostModel, Platform, for_targets
from layoutopt.cost_models.roofline import RooflineModel
from layoutopt.cost_models.spec import PlatformSpec, TargetSpec
from layoutopt.cost_models.target_files import read_spec, read_toml
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType
from layoutopt.registry import EntryPoints, instance_of
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.processor import instruction_sets

TARGETS = Path(__file__).parent / "targets"
TEMPLATE = TARGETS / "_template.toml"
"""The file of a new target: all keys with their descriptions; the required ones have values."""
HOST = "cpu"
_BLOCK = "{C0}"


def target_names() -> tuple[str, ...]:
    """The built-in targets, in alphabetical order."""
    return tuple(sorted(path.stem for path in TARGETS.glob("*.toml") if not path.stem.startswith("_")))


def find_target(text: str) -> CostModel:
    """The cost model of a target, or of several.

    Args:
        text: an argument of `load_target`, the name of a cost model of an installed package, or several of them separated by
            commas; or the path of a platform file.

    Raises:
        TargetError: there is no such target, a target is named twice, or its file is malformed.
    """
    models = [_find_one(name.strip()) for name in text.split(",")]
    names = [model.name for model in models]
    if twice := [name for name in names if names.count(name) > 1]:
        hint = "write different targets with commas between"
        raise TargetError(f"{twice[0]} is named twice", where=text, hint=hint)
    return for_targets(models)


def _find_one(name: str) -> CostModel:
    if name.endswith(".toml") and "device" in read_toml(Path(name)):
        return load_platform(Path(name))
    return _find_target(name)


def _find_target(name: str) -> CostModel:
    if name in (
        HOST,
        *target_names(),
    ):  # first, because a search of the installed packages takes longer than a small model
        return load_target(name)
    return EXTENSIONS[name] if name in EXTENSIONS else load_target(name)


def load_platform(path: Path) -> Platform:
    """The platform that a file describes.

    Raises:
        TargetError: the file is malformed, or there is no such target.
    """
    spec = read_spec(path, PlatformSpec)
    devices = [
        Device(
            each.name,
            _find_target(str(path.parent / each.target) if each.target.endswith(".toml") else each.target),
            each.memory.value if each.memory is not None else inf,
            None if each.ops is None else frozenset(each.ops),
            frozenset(each.lacks),
        )
        for each in spec.device
    ]
    links = [DeviceLink(each.devices, each.bandwidth.value, each.latency.value, each.converts) for each in spec.link]
    return Platform(spec.name, devices, links, spec.dialect)


def target_texts(model: CostModel) -> list[str]:
    """The names and the prices of a target, of several, or of a platform; of a cost model of another package the name."""
    if isinstance(model, Platform):
        devices = [
            f"{each.name} {each.memory} {each.ops and sorted(each.ops)} {sorted(each.lacks)} {target_texts(each.model)}"
            for each in model.devices
        ]
        return [model.name, model.dialect, *devices, *map(repr, model.links)]
    if isinstance(model, MultiTargetCostModel):
        return [text for each in model.models for text in target_texts(each)]
    return [model.name, model.spec.model_dump_json() if isinstance(model, RooflineModel) else type(model).__qualname__]


def _accepted(found: Any) -> CostModel:
    """The cost model that an entry point refers to: a cost model, the path of a target file, or a function that returns one."""
    made = found() if callable(found) and not isinstance(found, CostModel) else found
    model: CostModel = load_target(str(made)) if isinstance(made, Path) else _an_instance(made)
    return model


_an_instance = instance_of(
    CostModel, "it needs name, dialect, preferred_formats, kernel_seconds and conversion_seconds"
)
EXTENSIONS = EntryPoints("layoutopt.cost_models", _accepted, TargetError)
"""Cost models of installed packages."""


def load_target(name_or_path: str) -> RooflineModel:
    """The cost model of a target.

    Args:
        name_or_path: a built-in target, `cpu` for this machine, or a path that ends in `.toml`.

    Raises:
        TargetError: there is no such target, or its file is malformed.
    """
    name = host_target() if name_or_path == HOST else name_or_path
    spec = read_spec(Path(name), TargetSpec, parent_of) if name.endswith(".toml") else _builtin_spec(name)
    if name_or_path == HOST and spec.block(DType.FLOAT32) != (blocked_channels() or 1):
        spec = without_blocks(spec)
    return RooflineModel(spec)


def without_blocks(spec: TargetSpec) -> TargetSpec:
    """A target without its kernels for blocks of `{C0}` channels, which the installed onnxruntime may lack."""
    rows = tuple(row for row in spec.kernel if not any(_BLOCK in format for format in (row.formats or {}).values()))
    return spec.model_copy(update={"kernel": rows})


_HARDWARE = {
    **dict.fromkeys(("gpu", "cuda", "tensorrt", "webgpu"), "gpu-ampere --runtime any"),
    "openvino": "cpu --runtime openvino",
    "tflite": "cpu-neon --runtime any",
}
"""The targets and runtimes to name in place of programs and kinds of hardware."""


@cache
def _builtin_spec(name: str) -> TargetSpec:
    """The target file, read once: reading takes longer than planning a small model."""
    return read_spec(builtin(name), TargetSpec, parent_of)


def builtin(name: str) -> Path:
    """The file of a built-in target.

    Raises:
        TargetError: there is no target of that name.
    """
    if name in target_names():
        return TARGETS / f"{name}.toml"
    if options := _HARDWARE.get(name):
        hint = f"for a file of standard operators write: -t {options}"
        raise TargetError(f"{name} is no hardware with a cost model", hint=hint)
    names = (HOST, *target_names(), *EXTENSIONS.found)
    close = get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]}? There are" if close else "there are"
    raise TargetError(
        f"no target '{name}'",
        hint=f"{guess} {', '.join(names)}, and files that end in .toml",
    )


def parent_of(name: str, child: Path) -> Path:
    """The file that `inherits = name` in the file `child` refers to; a path is relative to the child.

    Raises:
        TargetError: there is no such target.
    """
    if name.endswith(".toml"):
        return child.parent / name
    if name.startswith("_") and (TARGETS / f"{name}.toml").is_file():
        return TARGETS / f"{name}.toml"
    try:
        return builtin(name)
    except TargetError as error:
        raise TargetError(f"inherits: {error.what}", where=str(child), hint=error.hint) from None


def host_target() -> str:
    """The built-in target for the processor of this machine.

    Raises:
        TargetError: no built-in target describes such a processor.
    """
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return "cpu-neon"
    features = instruction_sets()
    if "avx512f" in features:
        return "cpu-avx512"
    if "avx2" in features:
        return "cpu-avx2"
    raise TargetError(
        f"the processor of this machine ({machine or 'unknown'}) has neither AVX2, AVX-512 nor NEON",
        where=HOST,
        hint=f"name a target: {', '.join(target_names())}",
    )
