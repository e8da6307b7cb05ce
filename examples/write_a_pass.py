"""Write a pass, put it into the pipeline, and look at the graph around it.

    python examples/write_a_pass.py

The pass reports constants that many ops share. A pass is a frozen dataclass whose fields are its options. The pipeline detects
from the graph whether the pass changed it, and names the pass if it breaks an invariant.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import zoo

import layoutopt
from layoutopt.extend import Graph, Pass, PassContext, default_pipeline, to_text


@dataclass(frozen=True)
class NoteSharedWeights(Pass):
    """Note the constants that more than `most` ops read."""

    most: int = 1

    name = "note-shared-weights"

    def run(self, graph: Graph, context: PassContext) -> None:
        for value in graph.values:
            readers = {use.op for use in graph.uses(value)}
            if value.is_constant and len(readers) > self.most:
                context.note(self, value.name, f"{len(readers)} ops read it")


def main() -> None:
    default = default_pipeline("inference")
    pipeline = replace(default, passes=(NoteSharedWeights(most=10), *default.passes))

    def watch(moment: str, step: Pass, graph: Graph) -> None:
        if (moment, step.name) == ("after", "cancel-casts"):
            print("\n".join(to_text(graph).splitlines()[-4:]), "\n")

    with tempfile.TemporaryDirectory() as folder:
        path = zoo.save("mobilenetv2", Path(folder))
        result = layoutopt.optimize(path, "gpu-hopper", runtime="compiler", pipeline=pipeline, watch=watch)
    for note in result.report.notes:
        if note.source == NoteSharedWeights.name:
            print(f"{note.where}: {note.reason}")
    print(
        ", ".join(f"{each.name}{'*' if each.changed else ''}" for each in result.report.passes), "(* changed the graph)"
    )


if __name__ == "__main__":
    main()
