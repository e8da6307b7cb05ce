"""`--dump-ir`: the text form of the graph around passes.

before:PASS, after:PASS      around one pass
all                          before the first pass and after each
...=FOLDER                   into files there, in place of stderr
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.terminal import plain
from layoutopt.files import Kind, Overwrite, output_errors, write_text
from layoutopt.ir.graph import Graph
from layoutopt.ir.text import to_text
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass

_STDERR = "stderr"


@dataclass(slots=True)
class Dump:
    """What one `--dump-ir` asks for.

    Attributes:
        moment: before, after or all.
        step: the name of the pass; empty for all.
        folder: where files go; None for stderr.
        rule: which existing files may be replaced.
    """

    moment: str
    step: str = ""
    folder: Path | None = None
    rule: Overwrite = field(default_factory=Overwrite)

    def wants(self, moment: str, name: str, number: int) -> bool:
        """Whether it is for this moment of the pass that is run as the `number`th."""
        if self.moment == "all":
            return moment == "after" or number == 1
        return (moment, name) == (self.moment, self.step)

    def write(self, title: str, content: str) -> None:
        """Write a graph to where it is wanted."""
        if self.folder is None:
            with output_errors(Path("stderr")):
                print(f"# {title}", *map(plain, content.splitlines()), "", sep="\n", file=sys.stderr, flush=True)
            return
        path = self.folder / f"{title}.txt"
        with output_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_text(path, content, Kind.GRAPH_TEXT, self.rule)


@dataclass(slots=True)
class Dumps:
    """All that is asked for; called around every pass."""

    requests: list[Dump]
    number: int = field(default=0, init=False)

    def __call__(self, moment: str, step: Pass, graph: Graph) -> None:
        """Write the graph where it is wanted."""
        self.number += moment == "before"
        for request in self.requests:
            if request.wants(moment, step.name, self.number):
                number = self.number if moment == "after" else self.number - 1
                request.write(f"{number:02}-{moment}-{step.name}", to_text(graph))

    @property
    def uses_stderr(self) -> bool:
        """Whether something goes to stderr."""
        return any(request.folder is None for request in self.requests)


def dumps(requests: Sequence[str], mode: Mode, rule: Overwrite) -> Dumps:
    """Parse the values of all `--dump-ir`; files obey `rule`.

    Raises:
        UsageError: it is none of the above, or there is no such pass.
    """
    steps = [step.name for step in default_pipeline(mode).passes]
    return Dumps([_parse(request, steps, rule) for request in requests])


def _parse(request: str, steps: Sequence[str], rule: Overwrite) -> Dump:
    what, _, place = request.partition("=")
    moment, _, step = what.partition(":")
    if what != "all" and moment not in ("before", "after"):
        raise UsageError("not a dump", where=f"--dump-ir {request}", hint="say before:PASS, after:PASS or all[=FOLDER]")
    if what != "all" and step not in steps:
        hint = f"there are {', '.join(dict.fromkeys(steps))}"
        raise UsageError(f"no pass '{step}'", where=f"--dump-ir {request}", hint=hint)
    return Dump(moment, step, Path(place) if place not in ("", _STDERR) else None, rule)
