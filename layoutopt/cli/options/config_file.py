"""The options `--config` and `--no-config`, the values of other options that the configuration sets, and the mark of those that
it must not set, since a configuration may be a stranger's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Context, Option

from layoutopt.cli.exit_codes import UsageError

if TYPE_CHECKING:  # --help imports this module, and not pydantic
    from layoutopt.cli.config import Config

_CONFIG = (
    "Read options from this file; by default layoutopt.toml, or pyproject.toml with [tool.layoutopt], of this folder or of "
    "the closest one above it, up to that with .git or pyproject.toml."
)

ConfigFile: TypeAlias = Annotated[Path | None, Option("--config", metavar="FILE.toml", help=_CONFIG)]
NoConfig: TypeAlias = Annotated[bool, Option("--no-config", help="Read no configuration.")]


@dataclass(frozen=True, slots=True)
class TypedOnly:
    """The mark, in the annotation of an option, that the option may be typed and not be set by a configuration.

    Attributes:
        reason: the use of its value, such as "loads code".
    """

    reason: str


LOADS_CODE = TypedOnly("loads code")
NAMES_OUTPUT = TypedOnly("names a file to be written")


def requested_config(path: Path | None, is_off: bool) -> "Config | None":
    """The configuration that `--config` names, or the one of the working directory; None with `--no-config`.

    Raises:
        UsageError: the file cannot be read, its content is wrong, or both options are given.
    """
    if path is not None and is_off:
        raise UsageError("two configurations", where="--config --no-config", hint="choose one")
    if is_off:
        return None

    from layoutopt.cli.config import find_config, load_config

    return load_config(path) if path is not None else find_config(Path.cwd())


def configured(context: Context, config: "Config | None", model: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values of options for a model: those of the command line, else of the configuration, else the defaults.

    Args:
        context: the context of the command.
        config: the configuration, if there is one.
        model: the model.
        values: the values of parameters after parsing, by name; options of the configuration beyond these are left out.
    """
    found = config.options_for(model) if config is not None else {}
    given = {name for name in values if _is_given(context, name)}
    options = {option.replace("-", "_"): value for option, value in found.items()}
    return values | {name: value for name, value in options.items() if name in values and name not in given}


def _is_given(context: Context, name: str) -> bool:
    """Whether the command line, or an environment variable, contains an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
