"""`layoutopt cache`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet


def cache(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of the cache.")],
    max_size: Annotated[
        str | None,
        Option("--max-size", metavar="SIZE", help="Remove the entries unused for longest beyond this, as 10GB."),
    ] = None,
    max_age: Annotated[
        float | None, Option("--max-age", metavar="DAYS", help="Remove the entries that were not used for these days.")
    ] = None,
    remove_all: Annotated[bool, Option("--all", help="Remove all entries.")] = False,
    json: JsonFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Print the size of a cache of `optimize --cache`, and remove entries.

    A removed entry is computed again when it is needed. Other processes may use the cache at the same time.
    """
    max_bytes = None if max_size is None else _bytes(max_size)
    if max_age is not None and not max_age >= 0:
        raise UsageError("not a number of days", where=f"--max-age {max_age:g}", hint="give 0 or more")
    if remove_all and not (max_size is None and max_age is None):
        raise UsageError("removes all entries", where="--all", hint="leave out --max-size and --max-age")

    from layoutopt.batch.cache import Cache
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.rendering.cache import print_cache
    from layoutopt.files import path_text

    if not folder.is_dir():
        raise UsageError("no such folder", where=path_text(folder), hint="name the folder of --cache")
    record = JsonRecord("cache", json, force=force)
    opened = Cache(folder)
    removed = []
    if remove_all or max_bytes is not None or max_age is not None:
        max_seconds = None if max_age is None else max_age * 24 * 3600
        removed = opened.prune(max_bytes=0 if remove_all else max_bytes, max_age=max_seconds)
    print_cache(opened, removed, record, is_quiet=quiet)


def _bytes(text: str) -> int:
    """A size such as `10GB` in bytes.

    Raises:
        UsageError: it is no size.
    """
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise UsageError("not a size", where=f"--max-size {text}", hint="give bytes, or a unit as in 10GB") from None
