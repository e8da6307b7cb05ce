"""The table "Files that may be replaced" of docs/cli.md: each row is run, and a refusal changes no file."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import PLANNED, TARGET, Cli, assert_one_line, convolutions, files

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
HEADER = "| existing file | what is written | without `--force` | with `--force` |"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in DOCS.read_text(encoding="utf-8").partition(HEADER)[2].partition("\n\n")[0].splitlines()[2:]
]
ANY = ("-t", "cpu", "--runtime", "any", "--no-measure")
DUMP = "dumps/05-after-fold-constants.txt"

# Commands, with OUT for the existing file, and the file that is replaced.
WRITERS = {
    "a model": ("optimize a.onnx -o OUT -t mine.toml --inputs in.npz", "OUT"),
    "a model with the default name": ("optimize a.onnx", "a.opt.onnx"),
    "a model in a folder below": ("optimize m -o m/s", "m/s/a.onnx"),
    "a model of a batch": ("optimize a.onnx b.onnx -o OUT", "OUT/a.onnx"),
    "a report": ("optimize a.onnx -o new.onnx --json=OUT --config my.toml --inputs in.npz -t mine.toml", "OUT"),
    "JSON lines": ("optimize a.onnx b.onnx -o new --json=OUT", "OUT"),
    "a certificate": ("optimize a.onnx -o new.onnx --certificate OUT", "OUT"),
    "a page": ("optimize a.onnx -o new.onnx --html OUT", "OUT"),
    "a dump": ("inspect a.onnx --dump-ir after:fold-constants=dumps", DUMP),
    "external data": ("optimize a.onnx -o new.onnx --external-data OUT", "OUT"),
}
REPORT, PAGE, CERTIFICATE, DUMPED, LINES = (
    "optimize a.onnx --json=x",
    "optimize a.onnx --html x",
    "optimize a.onnx --certificate x",
    "inspect a.onnx --dump-ir after:fold-constants=dumps",
    "optimize a.onnx b.onnx -o old --json=x",
)


def save(*paths: str, seed: int = 0) -> None:
    """Save models with external data."""
    for each in map(Path, paths):
        each.parent.mkdir(parents=True, exist_ok=True)
        model = convolutions(seed)
        onnx.save(
            model,
            each,
            save_as_external_data=True,
            location=f"{each.parent.name}{each.stem}{seed}.bin",
            size_threshold=0,
        )


def text(content: str) -> Callable[[], object]:
    return lambda: Path("x").write_text(content)


def of_b(command: str) -> str:
    return command.replace("a.onnx", "b.onnx")


def twice() -> None:
    Path("x").write_text(Path("x").read_text() * 2)


# Commands and functions that make the existing file, and its name.
EXISTING: dict[str, tuple[list[str | Callable[[], object]], str]] = {
    "an empty file": ([text("")], "x"),
    "the result of the same model": (["optimize a.onnx -o x"], "x"),
    "the result of the same model, which has changed since": (
        ["optimize a.onnx -o x", lambda: save("a.onnx", seed=7)],
        "x",
    ),
    "the result of the same model for another target": (["optimize a.onnx -o x -t cpu --runtime any"], "x"),
    "a copy of the same model": ([lambda: shutil.copy("a.onnx", "x")], "x"),
    "the same model, which OUT names": ([], "./a.onnx"),
    "the same model, in the folder that OUT names": ([], "./"),
    "the same model, in the folder to which OUT links": ([lambda: Path("x").symlink_to(".")], "x"),
    "the result of another model": (["optimize b.onnx -o x"], "x"),
    "the result of a model of the same name in another folder": (["optimize m/a.onnx -o x"], "x"),
    "a model that layoutopt did not write": ([lambda: save("x", "a.opt.onnx", "m/s/a.onnx", seed=3)], "x"),
    "another model of the call": (
        [lambda: save("o/a.onnx"), lambda: os.remove("b.onnx"), lambda: os.link("o/a.onnx", "b.onnx")],
        "o",
    ),
    "a damaged model": ([text("no model")], "x"),
    "a certificate": ([CERTIFICATE], "x"),
    "a report of the same model": ([REPORT], "x"),
    "a report of another model": ([of_b(REPORT)], "x"),
    "a history of reports": ([REPORT, twice], "x"),
    "a record of another command": (["check a.onnx --json=x"], "x"),
    "kernel times": ([text('{"kernel_times": 4, "layoutopt_version": "1"}\n{"kernel": "x", "seconds": 1}\n')], "x"),
    "lines of the same models": ([LINES], "x"),
    "a history of lines": ([LINES, twice], "x"),
    "a certificate of the same model": ([CERTIFICATE], "x"),
    "a certificate of another model": ([of_b(CERTIFICATE)], "x"),
    "a page of the same model": ([PAGE], "x"),
    "a page of another model": ([of_b(PAGE)], "x"),
    "a page by somebody else": ([text("<!DOCTYPE html><title>mine</title>\n")], "x"),
    "a dump of the same model": ([DUMPED], ""),
    "a dump of another model": ([of_b(DUMPED)], ""),
    "the target file": ([], "mine.toml"),
    "the inputs": ([], "in.npz"),
    "the configuration": ([], "my.toml"),
    "a hard link to the model": ([lambda: os.link("a.onnx", "x")], "x"),
    "weights of the same model": ([], "a0.bin"),
    "weights of another model": ([], "b1.bin"),
}


def test_the_table_names_all_cases() -> None:
    assert {row[0] for row in ROWS} == EXISTING.keys() and {row[1] for row in ROWS} == WRITERS.keys()


@pytest.mark.parametrize(("existing", "written", "plain", "forced"), ROWS)
def test_a_row(cli: Cli, tmp_path: Path, existing: str, written: str, plain: str, forced: str) -> None:
    save("a.onnx", "m/a.onnx")
    save("b.onnx", seed=1)
    np.savez("in.npz", x=np.ones((1, 24, 24, 16), np.float32))
    Path("mine.toml").write_text(f'inherits = "{TARGET}"\nname = "mine"\n')
    Path("my.toml").touch()
    steps, out = EXISTING[existing]

    def run(command: str, *options: str) -> int:
        words = [word.replace("OUT", out) for word in command.split()]
        if words[0] == "optimize":
            target = ANY if "--certificate" in words else PLANNED[2:] if "-t" in words else PLANNED
            options = (*options, "--no-verify", "-q", *target)
        done = cli(*words, *options)
        if done.code:
            assert_one_line(done.err.splitlines(keepends=True)[0])
        return done.code

    for step in steps:
        if isinstance(step, str):
            assert run(step) == 0
        else:
            step()
    command, path = WRITERS[written]
    replaced = tmp_path / path.replace("OUT", out)
    for expected, options in ((plain, ()), (forced, ("--force",))):
        before, time = files(tmp_path), replaced.stat().st_mtime_ns
        code = run(command, *options)
        assert (code in (2, 8), code == 0) == (expected == "refused", expected == "replaced")
        if expected == "refused":
            assert {name: files(tmp_path)[name] for name in before} == before
        elif not options or plain == "refused":  # a second run in place has nothing to write
            assert replaced.stat().st_mtime_ns != time
