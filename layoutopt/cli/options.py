"""Options of the commands: made of the declarations, parsed, and merged with a configuration for each model.

    @takes_options("inspection", "target dim json force config")
    def inspect(model: ...) -> None: ...

`layoutopt.driver.options` declares the options of the Python functions, `CommandOptions` those of the command line alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from functools import cached_property, partial, wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from typer import Context, Exit, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.driver.options import (
    BASICS,
    CHECKS,
    OUTPUT,
    BatchOptions,
    ModelOptions,
    Options,
    declared,
    fault,
    key_of,
    option,
    written_file,
)
from layoutopt.gates.budgets import Budgets, parse_bytes

if TYPE_CHECKING:  # --help imports this module, and neither pydantic nor numpy
    from layoutopt.batch.task import ModelTask
    from layoutopt.cli.config import Config
    from layoutopt.driver.result import Result

T = TypeVar("T")


_own = partial(option, scope="")
"""An option that no configuration sets."""


@dataclass(frozen=True)
class CommandOptions:
    """The options of the command line alone."""

    config: tuple[str, ...] = option(
        (),
        "Read options from this file, or from none; or set a key: {keys}. By default layoutopt.toml, or pyproject.toml with "
        "[tool.layoutopt], of this folder or of the closest one above it in the project. Can be repeated.",
        kind=list[str],
        metavar="FILE.toml|none|KEY=VALUE",
        group=BASICS,
        scope="",
    )
    json: Path | None = written_file(
        "Print the results as JSON, or write them to FILE.json; of several models, one line for each.",
        metavar="[FILE.json]",
    )
    html: Path | None = written_file(
        "Write a page for a browser: the graph before and after, with formats, times and reasons."
    )
    certificate: Path | None = written_file(
        "Write the proof that OUT computes what MODEL computes, for `layoutopt certify`.", group=CHECKS
    )
    allow_tested: bool = option(
        False, "Accept values of a certificate that are compared on random inputs and not proven."
    )
    dump_ir: Path | None = written_file(
        "Write the graph before the first pass and after every pass to this folder.", metavar="FOLDER"
    )
    new: Path | None = written_file(
        "Write the template of a target file, with all keys and their descriptions.", metavar="NAME"
    )
    junit: Path | None = written_file("Write a JUnit report.", metavar="FILE.xml")
    baseline: Path | None = written_file("Compare with the numbers in this file.", metavar="FILE.json", group=CHECKS)
    dry_run: bool = _own(False, "Plan and verify, but write no model.", group=OUTPUT)
    quiet: bool = _own(False, "Print warnings and errors only.", "-q", group=OUTPUT)
    show_all: bool = _own(False, "Print one row per op or operator, not per type.", "--all")
    limit: int = _own(10, "Conversions, or candidates, that are priced.", metavar="N", least=0)
    tolerance: float | None = _own(
        None,
        "The largest accepted error; by default it depends on the rounding spread of A.",
        metavar="X",
        least=0,
    )
    seconds: float = _own(
        10.0, "Duration of the timed runs; there are at least 24 of each model.", metavar="S", above=0
    )
    seed: int = _own(0, "The seed of the random inputs.", metavar="N", least=0)
    update_baseline: bool = _own(False, "Write the numbers to the baseline file instead of comparing.", group=CHECKS)
    github: bool = _own(False, "Print annotations for GitHub, and append to the step summary.", group=OUTPUT)
    shape: str | None = _own(None, "The logical shape of a tensor in the format.", metavar="1,17,5,4")
    dtype: str | None = _own(None, "The element type; some block sizes depend on it.", metavar="float16")
    system: str | None = _own(None, "List the formats of one system only, such as ascend.", metavar="S")
    verbose: bool | None = _own(
        None,
        "Print the time of each pass and notes too, of several models all summaries; or warnings and errors only.",
        "--verbose/--quiet",
        "-v/-q",
        group=OUTPUT,
    )


OPTIONS: dict[str, Field[Any]] = {
    key_of(each).replace("-", "_"): each
    for kind in (BatchOptions, Options, CommandOptions, Budgets)
    for each, _ in declared(kind)
}
"""All options by the name of the parameter of a command, such as `max_growth`."""

UNTYPED = sorted(
    key_of(each) for each in OPTIONS.values() if not (of := each.metadata["option"]).group and of.scope == "models"
)
"""The keys that only a configuration, or `--config KEY=VALUE`, sets."""


def refusals() -> dict[str, str]:
    """The options that a configuration must not set: the reasons by key."""
    found = {key_of(each): each.metadata["option"].refusal for each in OPTIONS.values()}
    return {key: refusal for key, refusal in found.items() if refusal}


# --- values ------------------------------------------------------------------------------------------------


def parse_pins(requests: Sequence[str]) -> dict[str, str]:
    """Parse `--pin NAME=FORMAT`; NAME may contain equals signs, FORMAT may not.

    Raises:
        UsageError: a value has another form, or two values contradict each other.
    """
    return _assigned("--pin", requests, "a pin", "NAME=FORMAT", lambda text: text or None)


def parse_dims(requests: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Parse `--dim NAME=SIZE` or `--dim NAME=LOW:HIGH`, both ends included; NAME may contain equals signs.

    Raises:
        UsageError: as `parse_pins`.
    """
    return _assigned(
        "--dim", requests, "a dimension", "NAME=SIZE or NAME=LOW:HIGH, as in batch=1 or batch=1:16", _range
    )


def _range(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition(":")
    low, high = (int(each) if each.isascii() and each.isdigit() else 0 for each in (first, second or first))
    return (low, high) if 1 <= low <= high else None


def _assigned(
    spelling: str, requests: Sequence[str], kind: str, form: str, parse: Callable[[str], T | None]
) -> dict[str, T]:
    """Parse all values; a name may be repeated only with an equal value."""
    found: dict[str, tuple[T, str]] = {}
    for request in requests:
        name, _, text = request.rpartition("=")
        value = parse(text) if name else None
        if value is None:
            raise UsageError(f"not {kind}", where=f"{spelling} {request}", hint=f"write {form}")
        if found.setdefault(name, (value, text))[0] != value:
            raise UsageError(f"{name} is {found[name][1]} too", where=f"{spelling} {request}", hint="choose one")
    return {name: value for name, (value, _) in found.items()}


PARSERS: dict[str, Callable[[Sequence[str]], object]] = {"pin": parse_pins, "dim": parse_dims}
"""The parsers of options whose values are assignments."""


@dataclass(frozen=True)
class Settings:
    """The options of one model.

    Attributes:
        values: the values by the name of the option.
        reads: the files that the options name for reading.
    """

    values: Mapping[str, Any]
    reads: tuple[Path, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """The value of an option."""
        values = self.__dict__.get("values", {})  # absent while the object is unpickled
        if name not in values:
            raise AttributeError(name)
        return values[name]

    def updated(self, **values: Any) -> "Settings":
        """These options with other values."""
        return replace(self, values={**self.values, **values})

    def arguments(self, kind: Any = ModelOptions) -> dict[str, Any]:
        """The values of the options that a dataclass declares, as arguments of `layoutopt.optimize`."""
        names = {each.name: key_of(each).replace("-", "_") for each, _ in declared(kind)}
        found = {name: (PARSERS.get(key), self.values[key]) for name, key in names.items()}
        return {name: value if parse is None else parse(value) for name, (parse, value) in found.items()}

    def task(self, model: Path, output: Path | None) -> "ModelTask":
        """The task of a model in a batch."""
        from layoutopt.batch.task import ModelTask

        arguments = self.arguments() | {"target": self.target}
        inputs, external_data = tuple(self.inputs), self.external_data if output is not None else None
        return ModelTask(model, output, arguments, inputs, external_data, self.force, self.reads, self.cache)

    def run(self, model: Path | bytes, **callbacks: Any) -> "Result":
        """The result of `layoutopt.optimize` with these options; `callbacks` are its callables, such as `watch`."""
        from layoutopt import api
        from layoutopt.sample_inputs import read_inputs

        inputs = [read_inputs(path) for path in self.inputs]
        return api.optimize(model, self.target, **self.arguments(), inputs=inputs, **callbacks)


class Given:
    """The options of one command, by name: those of the command line, or their defaults.

    Args:
        context: the context of the command.
        values: the values after parsing, by name.

    Raises:
        UsageError: a value is wrong.
    """

    def __init__(self, context: Context, values: dict[str, Any]) -> None:
        self.has_traceback: bool = getattr(context.obj, "traceback", False)
        self._values = {name: () if value is None and _is_list(name) else value for name, value in values.items()}
        sources = {name: context.get_parameter_source(name) for name in values}
        self._typed = {name for name, each in sources.items() if each and each.name in ("COMMANDLINE", "ENVIRONMENT")}
        for name in PARSERS.keys() & values.keys():
            PARSERS[name](self._values[name])
        for name in self._typed & {name for name, each in OPTIONS.items() if each.metadata["option"].has_limits}:
            if (wrong := fault(OPTIONS[name], values[name])) is not None:
                raise UsageError(wrong, where=f"--{name.replace('_', '-')} {values[name]}", hint="correct the value")

    def __getattr__(self, name: str) -> Any:
        """The value of an option; its default if the command does not have it."""
        return self._values[name] if name in self._values else _default(name)

    @property
    def is_quiet(self) -> bool:
        """Whether only warnings and errors are printed."""
        return self.quiet or self.verbose is False

    @cached_property
    def configuration(self) -> "Config":
        """The configuration.

        Raises:
            UsageError: it cannot be read, or its content is wrong.
        """
        from layoutopt.cli.config import requested_config

        return requested_config(self.config)

    def is_set(self, name: str, model: Path) -> bool:
        """Whether the command line or the configuration contains an option for a model."""
        return name in self._typed or name in self.configuration.options_for(model)

    def budgets(self, model: Path) -> Budgets:
        """The budgets of a model: those of the command line, else of the configuration."""
        values: dict[str, Any] = {**self.configuration.budgets_for(model)}
        values |= {each.name: self._values[each.name] for each in fields(Budgets) if each.name in self._typed}
        return Budgets(**values)

    def settings(self, model: Path | None = None) -> Settings:
        """The options of a model: those of the command line, else of the configuration, else the defaults.

        Args:
            model: the file; None for the options that hold for no model in particular.
        """
        values = {name: _default(name) for name in OPTIONS}
        values |= self._values | self.configuration.options_for(model or Path())
        values |= {name: self._values[name] for name in self._typed}
        reads = [] if self.configuration.path is None else [self.configuration.path]
        reads += [Path(each) for each in values["target"].split(",") if each.endswith(".toml")]
        reads += [each for name in ("inputs", "custom_ops") for each in values[name]]
        reads += [] if values["profile"] is None else [values["profile"]]
        return Settings(values, tuple(reads))


# --- typer -------------------------------------------------------------------------------------------------


def takes_options(module: str, names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: it has the options of these names, and calls the function of its name in a module.

    The function takes the options as `Given`, then the arguments of the command, and returns an exit code or None.
    """
    chosen = names.split()

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(context: Context, **values: Any) -> None:
            shared = {name: values.pop(name) for name in chosen}
            run = getattr(import_module(f"layoutopt.cli.{module}"), function.__name__)
            if code := run(Given(context, shared), **values):
                raise Exit(code)

        own = signature(function).parameters.values()
        kinds = Parameter.KEYWORD_ONLY
        parameters = [Parameter("context", kinds, annotation=Context), *own, *map(_parameter, chosen)]
        command.__signature__ = Signature(  # type: ignore[attr-defined]
            [each.replace(kind=kinds) for each in parameters]
        )
        command.__annotations__ = {}
        return command

    return decorate


def _parameter(name: str) -> Parameter:
    """The parameter of a command for an option."""
    each = OPTIONS[name]
    declaration, key = each.metadata["option"], key_of(each)
    kind: Any = declaration.kind or each.type
    spelling = f"--{key}/--no-{key}" if each.default is True else f"--{key}"
    is_spelled = any(flag.startswith("--") for flag in declaration.flags)
    found = Option(
        None if _is_list(name) else each.default,
        *(() if is_spelled else (spelling,)),
        *declaration.flags,
        help=declaration.help.format(keys=", ".join(UNTYPED)),
        metavar=declaration.metavar,
        rich_help_panel=declaration.group,
        min=declaration.least,
        **_DETAILS.get(name, {}),
    )
    annotation = kind | None if each.default is None or _is_list(name) else kind
    return Parameter(name, Parameter.KEYWORD_ONLY, default=found, annotation=annotation)


def _is_list(name: str) -> bool:
    return get_origin(OPTIONS[name].metadata["option"].kind) is list


def _default(name: str) -> Any:
    default = OPTIONS[name].default
    return () if default is None and _is_list(name) else default


def complete_target(incomplete: str) -> list[str]:
    """The names of built-in targets that begin with a text, for shells."""
    from layoutopt.cost_models import target_names

    return [name for name in ("cpu", *target_names()) if name.startswith(incomplete)]


_DETAILS: dict[str, dict[str, Any]] = {
    "target": {"autocompletion": complete_target},
    "jobs": {"envvar": "LAYOUTOPT_JOBS"},
    "max_bytes_moved": {"parser": parse_bytes},
}
