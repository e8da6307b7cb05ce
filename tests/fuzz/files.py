"""Damaged files.

A file contains a random graph, with changed bytes, fields or contents. A command reads the file, and must end with a documented
exit code, with one line if there is an error, and with no file but the requested one.
"""

import importlib
import os
import pkgutil
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import typer
from onnx.external_data_helper import set_external_data

from layoutopt import cli, onnx_io
from layoutopt.cli.exit_codes import INTERNAL, exit_codes
from layoutopt.errors import FormatError, LayoutoptError, PinError, TargetError, VerificationError
from layoutopt.onnx_io.serialize import to_proto
from layoutopt.runtime.session import Session
from layoutopt.verification.edits import add_outputs
from layoutopt.verification.runs import Request, run_original

from .cases import case_of
from .choices import Choices, Seeded, chance, pick, weighted
from .isolation import Verdict
from .mutations import damage

MODELS = 60  # models from which files are made
_LARGEST = 60_000  # bytes of a file that is damaged
_WEIGHTS = bytes(
    random.Random("weights").choices((0x3C, 0x3D, 0x3E, 0x3F, 0xBC, 0xBD, 0xBE, 0xBF), k=10240)
)  # small numbers
_MADE = typer.main.get_command
_TARGETS = ("gpu-hopper", "ascend-910b", "cpu-avx512", "cpu")


def examine(seed: int) -> Verdict:
    """The outcome of one example."""
    choices = Seeded(f"file {seed}")
    content = damaged(choices)
    with tempfile.TemporaryDirectory(prefix="layoutopt-fuzz-") as folder:
        return evaluate(choices, content, Path(folder))


def damaged(choices: Choices) -> bytes:
    """A damaged file, sometimes an undamaged one."""
    content = _content(choices.number(0, MODELS - 1))
    if chance(choices, 55):
        model = onnx.ModelProto.FromString(content)
        if chance(choices, 30):
            _put_outside(choices, model)
        damage(choices, model)
        try:
            return model.SerializeToString()
        except ValueError:  # invalid text
            return content
    other = _content(choices.number(0, MODELS - 1))
    for _ in range(pick(choices, (1, 1, 1, 2, 4))):
        content = pick(choices, BYTE_EDITS)(choices, content, other)
        if not content:
            break
    return content


def _overwrite(choices: Choices, content: bytes, other: bytes) -> bytes:
    """Other bits or bytes."""
    damaged = bytearray(content)
    for _ in range(pick(choices, (1, 1, 2, 8, 40))):
        place = choices.number(0, len(damaged) - 1)
        damaged[place] = pick(choices, (damaged[place] ^ 1 << choices.number(0, 7), choices.number(0, 255)))
    return bytes(damaged)


def _replace(choices: Choices, content: bytes, other: bytes) -> bytes:
    """Some bytes, or all that follow, left out, repeated, or replaced by others."""
    start = choices.number(0, len(content) - 1)
    end = pick(choices, (start, start + choices.number(1, 40), len(content)))
    new = bytes(choices.number(0, 255) for _ in range(choices.number(1, 12)))
    middle = pick(choices, (b"", content[start:end] * 2, new, other[choices.number(0, len(other)) :]))
    return content[:start] + middle + content[end:]


BYTE_EDITS = (_overwrite, _overwrite, _replace, _replace, _replace, _replace, _replace)


def evaluate(choices: Choices, content: bytes, folder: Path) -> Verdict:
    """Run a command on a file."""
    work, scratch = folder / "work", folder / "scratch"
    prepare(work, content)
    scratch.mkdir()
    before = listing(folder)
    arguments = _command(choices, work)
    code, stderr, printed = run(arguments, scratch)
    appeared = sorted(set(listing(folder)) - set(before))
    called = " ".join(arguments).replace(f"{work}/", "")
    fault = _fault(code, stderr, printed, appeared, arguments)
    return (
        Verdict(fault, f"{called}: {stderr or printed}", is_failure=True) if fault else Verdict(f"exit {code}", stderr)
    )


def prepare(work: Path, content: bytes) -> None:
    """A folder with the file and the files that it may refer to."""
    (work / "folder").mkdir(parents=True)
    (work / "m.onnx").write_bytes(content)
    (work / "weights").write_bytes(_WEIGHTS)
    (work / "link").symlink_to("/etc/hostname")


def listing(folder: Path) -> list[str]:
    """All files, relative to the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def run(arguments: Sequence[str], scratch: Path) -> tuple[int, str, str]:
    """The exit code, stderr and stdout of a command, including output of C++ libraries."""
    with (
        _caught(2, scratch.parent / "stderr") as errors,
        _caught(1, scratch.parent / "stdout") as output,
        patch.object(tempfile, "tempdir", str(scratch)),
        patch.object(typer.main, "get_command", _parser),
    ):
        code = cli.main(arguments)
    texts = [path.read_text(errors="replace") for path in (errors, output)]
    for path in (errors, output):
        path.unlink()
    return code, *texts  # type: ignore[return-value]


@cache
def _parser(app: typer.Typer) -> Any:
    """The parser of the command line, created once."""
    return _MADE(app)


@contextmanager
def _caught(descriptor: int, path: Path) -> Iterator[Path]:
    """Redirect a descriptor to a file."""
    kept = os.dup(descriptor)
    name = "stderr" if descriptor == 2 else "stdout"
    stream = getattr(sys, name)
    with path.open("w") as file:
        os.dup2(file.fileno(), descriptor)
        setattr(sys, name, file)
        try:
            yield path
        finally:
            file.flush()
            os.dup2(kept, descriptor)
            os.close(kept)
            setattr(sys, name, stream)


def _command(choices: Choices, work: Path) -> list[str]:
    model, out = str(work / "m.onnx"), str(work / "out.onnx")
    way = weighted(choices, [("plan", 55), ("optimize", 25), ("inspect", 12), ("check", 4), ("verify", 4)])
    target = pick(choices, _TARGETS)
    if way == "inspect":
        return ["inspect", model, "--target", target, "--json"]
    if way == "check":
        return ["check", model]
    if way == "verify":
        return ["verify", model, model]
    arguments = ["optimize", model, "-o", out, "--quiet", "--target", target]
    if way == "plan":
        arguments.append("--no-verify")
    if target != "cpu" and chance(choices, 50):
        arguments += ["--config", f"dialect={pick(choices, ('ops', 'functions', 'ascend'))}"]
    if chance(choices, 15):
        arguments += ["--config", "mode=training"]
    if chance(choices, 10):
        arguments += ["--external-data", "out.data"]
    return arguments


def _fault(code: int, stderr: str, printed: str, appeared: list[str], arguments: Sequence[str]) -> str:
    """The fault of a command; empty without a fault."""
    if code not in exit_codes():
        return f"exit code {code}"
    if code == LayoutoptError.exit_code:  # such as a small file that exhausts the memory
        return "exit code 1"
    if code == INTERNAL or "Traceback" in stderr + printed:
        return "internal error"
    if code in (TargetError.exit_code, FormatError.exit_code, PinError.exit_code):
        return "blames the command line"
    if code == VerificationError.exit_code and arguments[0] == "optimize" and _is_finite(Path(arguments[1])):
        return "mismatch"
    if code and (stderr.count("\n") != 1 or not stderr.startswith("error: ")):
        return "not one line"
    allowed = {"work/out.onnx", "work/out.data"} if code == 0 and arguments[0] == "optimize" else set()
    if extra := [name for name in appeared if name not in allowed]:
        return f"left behind {', '.join(extra)}"
    if code == 0 and arguments[0] == "optimize" and "work/out.onnx" not in appeared:
        return "wrote nothing"
    return ""


def _is_finite(model: Path) -> bool:
    """Whether all values of a model are finite.

    If not, two kernels may differ: zero padding times NaN is NaN in kernels that multiply it, and a sum may overflow in one
    order but not in another.
    """
    source = onnx_io.read(model)
    names = [value.name for node in source.graph for value in node.outputs if value.name]
    message = to_proto(source)
    add_outputs(message, names)
    session = Session(message.SerializeToString(), is_optimised=False)
    runs, _ = run_original(session, Request())
    values = [
        value
        for run in runs
        for value in run.values.values()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    ]
    return all(bool(np.isfinite(value).all()) for value in values)


@lru_cache(maxsize=MODELS)
def _content(number: int) -> bytes:
    """A small valid model."""
    seed = 1_000_000 + 1000 * number
    while True:
        case = case_of(seed)
        if case is not None and case.model.ByteSize() <= _LARGEST:
            return case.model.SerializeToString()
        seed += 1


def _put_outside(choices: Choices, model: onnx.ModelProto) -> None:
    """Move some weights to external data."""
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if 0 < size <= 10_000 and chance(choices, 40):
            set_external_data(tensor, "weights", 0, size)
            tensor.ClearField("raw_data")


def keep(seed: int, outcome: Verdict, folder: Path) -> None:
    """Save a failing file with the files that it may refer to."""
    choices = Seeded(f"file {seed}")
    content = damaged(choices)
    prepare(folder / "files", content)
    arguments = _command(choices, folder / "files")
    called = " ".join(arguments).replace(f"{folder}/", "")
    (folder / "command.txt").write_text(f"layoutopt {called}\n")


def load() -> None:
    """Import the modules of all commands once, before processes are started."""
    for each in pkgutil.iter_modules(cli.__path__):
        importlib.import_module(f"{cli.__name__}.{each.name}")
