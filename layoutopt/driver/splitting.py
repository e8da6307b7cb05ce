"""The partitions of a result for a platform as a model each, with a manifest of their order, devices, inputs and outputs."""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path

import onnx

from layoutopt import onnx_io
from layoutopt.errors import ArgumentError
from layoutopt.files import FileKind, Overwrite, create_folder, write_text
from layoutopt.onnx_io.partitions import device_of
from layoutopt.verification.parts import model_of_part, parts_of

MANIFEST = "manifest.json"


def split(
    model: onnx.ModelProto, folder: Path, *, source: str | None, reads: Sequence[Path] = (), force: bool = False
) -> list[Path]:
    """Write the partitions of a model, each of which reads results of earlier ones, and the manifest last.

    Args:
        model: the model, whose nodes have devices.
        folder: the folder, which is created if there is none.
        source: the file of the original.
        reads: other files that have been read, which are never replaced.
        force: replace existing files of any kind.

    Returns:
        The files.

    Raises:
        ArgumentError: no node has a device.
        OutputError: a file cannot be written, or must not be replaced.
    """
    graph = model.graph
    if not any(map(device_of, graph.node)):
        hint = "give a platform file as target"
        raise ArgumentError("the result has no devices", where="split", hint=hint)
    create_folder(folder)
    types = {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}
    rows, files = [], []
    for number, part in enumerate(parts_of(graph, inf)):
        device = device_of(graph.node[part.start])
        path = folder / f"{number:02}-{device}.onnx"
        piece = onnx_io.from_message(model_of_part(model, part, types))
        onnx_io.check(piece)
        onnx_io.write(piece, path, source=source, reads=reads, force=force)
        rows.append({"file": path.name, "device": device, "inputs": part.inputs, "outputs": part.outputs})
        files.append(path)
    manifest = folder / MANIFEST
    names = {"inputs": [each.name for each in graph.input], "outputs": [each.name for each in graph.output]}
    text = json.dumps({**names, "partitions": rows}, indent=1) + "\n"
    sources = (Path(source),) if source else ()
    overwrite = Overwrite(sources, None, force, tuple(reads), "split")
    write_text(manifest, text, FileKind.REPORT, overwrite)
    return [*files, manifest]
