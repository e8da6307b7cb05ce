"""Output files: written atomically, without replacing files that are in use or were not written by layoutopt."""

from layoutopt.files.overwrite import (
    MARK,
    FileKind,
    Overwrite,
    conflict,
    external_files,
    external_locations,
    is_same_file,
    mark_of_model,
    marked,
    models_with_weights,
    result_mark,
    staged_text,
    write_text,
)
from layoutopt.files.staging import (
    Staging,
    check_writable,
    create_folder,
    output_errors,
    output_folders,
    path_text,
    scratch_folder,
)
