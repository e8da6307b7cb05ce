"""The partitions of a result for a platform as a model each, with a manifest of their order, devices, inputs and outputs."""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path

import onnx
from onnx.helper import find_min_ir_version_for

from layoutopt import onnx_io
from layoutopt.errors import ArgumentError, OutputError
from layoutopt.files import FileKind, Overwrite, create_folder, output_folders, path_text, write_text
from layoutopt.onnx_io.partitions import device_of
from layoutopt.verification.parts import model_of_part, parts_of

MANIFEST = "manifest.json"

WITH_METADATA = 10
"""The IR version since which nodes have metadata."""


def split(
    model: onnx.ModelProto,
    folder: Path,
    *,
    devices: Sequence[str],
    source: str | None,
    reads: Sequence[Path] = (),
    force: bool = False,
) -> list[Path]:
    """Write the partitions of a model, each of which reads results of earlier ones, and the manifest last.

    Args:
        model: the model, whose nodes have devices.
        folder: the folder, which is created if there is none.
        devices: the devices of the platform that the model was planned for.
        source: the file of the original, which is never replaced.
        reads: other files that have been read, which are never replaced.
        force: replace existing files that are no results of the same file.

    Returns:
        The files.

    Raises:
        ArgumentError: a node has no device of the platform.
        OutputError: a file cannot be written, or must not be replaced; none is written then.
    """
    graph = model.graph
    if not devices or not {*map(device_of, graph.node)} <= {*devices}:
        hint = "give a platform file as target"
        raise ArgumentError("the result has no devices of a platform", where="split", hint=hint)
    parts = parts_of(graph, inf)
    digits = max(2, len(str(len(parts) - 1)))
    placed = [device_of(graph.node[each.start]) for each in parts]
    files = [folder / f"{number:0{digits}}-{device}.onnx" for number, device in enumerate(placed)]
    manifest = folder / MANIFEST
    overwrite = Overwrite((Path(source),) if source else (), None, force, tuple(reads), "split")
    types = {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}
    needed = find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    version = min(model.ir_version, max(WITH_METADATA, needed))
    rows = []
    with output_folders([folder]):
        create_folder(folder)
        for path in files:
            overwrite.check(path, FileKind.MODEL)
        overwrite.check(manifest, FileKind.REPORT)
        if others := {*folder.glob("[0-9]*-*.onnx")}.difference(files):
            hint = "name another folder, or remove it"
            raise OutputError("is a partition of another split", where=path_text(min(others)), hint=hint)
        for path, device, part in zip(files, placed, parts, strict=True):
            message = model_of_part(model, part, types)
            message.ir_version = version
            piece = onnx_io.from_message(message)
            onnx_io.check(piece)
            onnx_io.write(piece, path, source=source, reads=reads, force=force)
            rows.append({"file": path.name, "device": device, "inputs": part.inputs, "outputs": part.outputs})
        names = {"inputs": [each.name for each in graph.input], "outputs": [each.name for each in graph.output]}
        text = json.dumps({**names, "partitions": rows}, indent=1) + "\n"
        write_text(manifest, text, FileKind.REPORT, overwrite)
    return [*files, manifest]
