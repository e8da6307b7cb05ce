"""Output files: written atomically, without replacing files that are in use or were not written by layoutopt."""

from layoutopt.files.default_result import check_default_result, was_written_for
from layoutopt.files.kinds import FIGURE_MARK, PAGE_MARK, SARIF_TOOL, FileKind, is_predecessor
from layoutopt.files.onnx_file import external_files, external_locations, is_onnx_file, metadata_keys
from layoutopt.files.overwrite import (
    Overwrite,
    append_text,
    directory_entry,
    is_same_file,
    models_with_weights,
    staged_text,
    write_text,
)
from layoutopt.files.sparse_copy import copy_range, write_with_holes
from layoutopt.files.staging import Staging, check_writable, output_error, output_errors, path_text
from layoutopt.files.temporary import scratch_folder

__all__ = [
    "FIGURE_MARK",
    "PAGE_MARK",
    "SARIF_TOOL",
    "FileKind",
    "Overwrite",
    "Staging",
    "append_text",
    "check_default_result",
    "check_writable",
    "copy_range",
    "directory_entry",
    "external_files",
    "external_locations",
    "is_onnx_file",
    "is_predecessor",
    "is_same_file",
    "metadata_keys",
    "models_with_weights",
    "output_error",
    "output_errors",
    "path_text",
    "scratch_folder",
    "staged_text",
    "was_written_for",
    "write_text",
    "write_with_holes",
]
