"""The partitions of a result for a platform as a model each, with a manifest of their order, devices, inputs and outputs."""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path

import onnx
from onnx.helper import find_min_ir_version_for

from layoutopt import onnx_io
from layoutopt.errors import ArgumentError, OutputError
from layoutopt.files import (
    FileKind,
    Overwrite,
    create_folder,
    mark_of_model,
    output_errors,
    output_folders,
    path_text,
    result_mark,
    write_text,
)
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

    The manifest and the partitions of an earlier split of the same file are removed first.

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
        OutputError: a file must not be replaced, and none is changed then; or one cannot be written, and there is no manifest
            then.
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
        found = {*filter(mark_of_model, folder.glob("[0-9]*-*.onnx"))}.difference(files)
        own = result_mark(Path(source), folder) if source else None
        stale = {each for each in found if mark_of_model(each) == own and each.stem.partition("-")[2] in devices}
        if others := sorted(path_text(each.name) for each in found - stale):
            what, hint = f"contains other results: {', '.join(others)}", "name another folder, or remove them"
            raise OutputError(what, where=path_text(folder), hint=hint)
        for path in (manifest, *stale):
            with output_errors(path):
                path.unlink(missing_ok=True)
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
