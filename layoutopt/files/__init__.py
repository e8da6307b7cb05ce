"""Output files: written atomically, without replacing files that are in use or were not written by layoutopt."""

from layoutopt.files.kinds import MARK, FileKind, has_kind, marked
from layoutopt.files.onnx_file import external_files, external_locations, is_onnx_file, metadata
from layoutopt.files.overwrite import (
    Overwrite,
    append_text,
    conflict,
    is_result,
    is_same_file,
    models_with_weights,
    result_mark,
    staged_text,
    write_text,
)
from layoutopt.files.sparse_copy import copy_range, write_with_holes
from layoutopt.files.staging import Staging, check_writable, output_error, output_errors, path_text
from layoutopt.files.temporary import scratch_folder

__all__ = [
    "MARK",
    "FileKind",
    "Overwrite",
    "Staging",
    "append_text",
    "check_writable",
    "conflict",
    "copy_range",
    "external_files",
    "external_locations",
    "has_kind",
    "is_onnx_file",
    "is_result",
    "is_same_file",
    "marked",
    "metadata",
    "models_with_weights",
    "output_error",
    "output_errors",
    "path_text",
    "result_mark",
    "scratch_folder",
    "staged_text",
    "write_text",
    "write_with_holes",
]
