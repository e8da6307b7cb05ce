"""Files of failures: the example, reduced where the part can reduce it, and the command that repeats it."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from layoutopt.batch import Cluster, Failure

from . import client

FOLDER = "failures"
MOST = 5  # failures of a kind in a part that are kept; the others have their commands in the report


def command_of(line: dict[str, Any]) -> str:
    """The command that repeats an example."""
    return f"python benchmarks/campaign.py --only {line['part']}:{line['seed']}"


def keep(failures: Iterable[dict[str, Any]], cluster: Cluster, output: Path) -> None:
    """Write a folder for each failure, up to `MOST` of a kind."""
    folder = output / FOLDER
    known = Counter[tuple[str, str]]()
    for path in folder.glob("*/failure.json"):
        line = json.loads(path.read_text(encoding="utf-8"))
        known[line["part"], line["kind"]] += 1
    chosen = []
    for line in failures:
        known[line["part"], line["kind"]] += 1
        if known[line["part"], line["kind"]] <= MOST:
            chosen.append(line)
    for index, answer in cluster.map_unordered(client.run, [request(line) for line in chosen]):
        line = chosen[index]
        write(folder / f"{line['part']}-{line['seed']}", line, {} if isinstance(answer, Failure) else answer)


def request(line: dict[str, Any]) -> dict[str, Any]:
    """The request to a server for the files of an example."""
    return {"part": line["part"], "seed": line["seed"], "kind": line["kind"], "detail": line.get("detail", "")}


def write(folder: Path, line: dict[str, Any], answer: dict[str, Any]) -> None:
    """Write the files of an example that a server has replied, if any, and how to repeat it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in answer.get("files", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
    text = f"{line['kind']}: {line.get('detail', '')}\n\n{command_of(line)}\n"
    (folder / "failure.txt").write_text(text, encoding="utf-8")
    (folder / "failure.json").write_text(json.dumps(line) + "\n", encoding="utf-8")
