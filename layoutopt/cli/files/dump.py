"""`--dump-ir`: the graph as text, before or after passes.

before:PASS, after:PASS      the graph before or after one pass
all                          the graph before the first pass and after every pass
...=FOLDER                   written to files in FOLDER instead of stderr
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError
from layoutopt.files import FileKind, Overwrite, output_errors, write_text
from layoutopt.ir.graph import Graph, to_text
from layoutopt.passes.base import Pass, Pipeline
from layoutopt.report.printable import printable

_STDERR = "stderr"


@dataclass(slots=True)
class DumpRequest:
    """The value of one `--dump-ir`.

    Attributes:
        moment: before or after a pass; all for both.
        pass_name: the name of the pass; empty for all.
        folder: the folder for files; None for stderr.
        overwrite: the rules for existing files.
    """

    moment: str
    pass_name: str = ""
    folder: Path | None = None
    overwrite: Overwrite = field(default_factory=Overwrite)

    def matches(self, moment: str, pass_name: str, number: int) -> bool:
        """Whether the request covers this moment (before or after) of the `number`th pass that runs."""
        if self.moment == "all":
            return moment == "after" or number == 1
        return (moment, pass_name) == (self.moment, self.pass_name)

    def write(self, title: str, content: str) -> None:
        """Write a graph as text to the folder, or to stderr."""
        if self.folder is None:
            with output_errors(Path("stderr")):
                print(f"# {title}", *map(printable, content.splitlines()), "", sep="\n", file=sys.stderr, flush=True)
            return
        path = self.folder / f"{title}.txt"
        with output_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_text(path, content, FileKind.GRAPH_TEXT, self.overwrite)


@dataclass(slots=True)
class GraphDumper:
    """A pass callback that writes the graph for every request that matches."""

    requests: list[DumpRequest]
    number: int = field(default=0, init=False)

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        """Write the graph for every request that matches this moment of a pass."""
        self.number += moment == "before"
        for request in self.requests:
            if request.matches(moment, current.name, self.number):
                number = self.number if moment == "after" else self.number - 1
                request.write(f"{number:02}-{moment}-{current.name}", to_text(graph))

    @property
    def uses_stderr(self) -> bool:
        """Whether a request writes to stderr."""
        return any(request.folder is None for request in self.requests)


def parse_dumps(requests: Sequence[str], pipeline: Pipeline, overwrite: Overwrite) -> GraphDumper:
    """Parse the values of all `--dump-ir` for the passes of a pipeline; `overwrite` decides which files may be replaced.

    Raises:
        UsageError: a value is none of the forms above, or there is no such pass.
    """
    pass_names = [each.name for each in pipeline.passes]
    return GraphDumper([_parse(request, pass_names, overwrite) for request in requests])


def _parse(request: str, pass_names: Sequence[str], overwrite: Overwrite) -> DumpRequest:
    position, _, folder = request.partition("=")
    moment, _, pass_name = position.partition(":")
    if position != "all" and moment not in ("before", "after"):
        hint = "write before:PASS, after:PASS or all[=FOLDER]"
        raise UsageError("not a position in the pipeline", where=f"--dump-ir {request}", hint=hint)
    if position != "all" and pass_name not in pass_names:
        hint = f"there are {', '.join(dict.fromkeys(pass_names))}"
        raise UsageError(f"no pass '{pass_name}'", where=f"--dump-ir {request}", hint=hint)
    return DumpRequest(moment, pass_name, Path(folder) if folder not in ("", _STDERR) else None, overwrite)
