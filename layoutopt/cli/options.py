"""Options of the commands: made of the declarations, parsed, and merged with a configuration for each model.

    @takes_options("inspection", "target dim json force config")
    def inspect(model: ...) -> None: ...

`layoutopt.driver.options` declares the options of the Python functions, `CommandOptions` those of the command line alone.
"""

import re
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from functools import cached_property, partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_origin

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
from layoutopt.runtime.deferred_import import import_deferring

if TYPE_CHECKING:  # --help imports this module, and neither pydantic nor numpy
    from layoutopt.batch.task import ModelTask
    from layoutopt.cli.config import Config
    from layoutopt.cost import CostModel
    from layoutopt.cost_models import RuntimeSpec
    from layoutopt.driver.result import Result

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
    split: Path | None = written_file(
        "Write one model per partition of a result for a platform, and manifest.json, to this folder.", metavar="FOLDER"
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


REFUSALS = {key_of(each): of.refusal for each in OPTIONS.values() if (of := each.metadata["option"]).refusal}
"""The reasons why a configuration must not set some options, by key."""


# --- values ------------------------------------------------------------------------------------------------


def parse_pin(text: str) -> tuple[str, str]:
    """Parse the value of `--pin NAME=FORMAT`; NAME may contain equals signs, FORMAT may not.

    Raises:
        UsageError: it has another form.
    """
    name, _, format = text.rpartition("=")
    if not name or not format:
        raise UsageError("not a pin", where=f"--pin {text}", hint="write NAME=FORMAT")
    return name, format


def parse_dim(text: str) -> tuple[str, tuple[int, int]]:
    """Parse the value of `--dim NAME=SIZE` or `--dim NAME=LOW:HIGH`, both ends included; NAME may contain equals signs.

    Raises:
        UsageError: it has another form.
    """
    found = re.fullmatch(r"(.+)=([0-9]+)(?::([0-9]+))?", text, re.DOTALL)
    low, high = (int(found[2]), int(found[3] or found[2])) if found is not None else (0, 0)
    if found is None or not 1 <= low <= high:
        hint = "write NAME=SIZE or NAME=LOW:HIGH, as in batch=1 or batch=1:16"
        raise UsageError("not a dimension", where=f"--dim {text}", hint=hint)
    return found[1], (low, high)


def parse_device(text: str) -> tuple[str, str]:
    """Parse the value of `--device NAME=OP`; the op type or the beginning of the op's name comes first.

    Raises:
        UsageError: it has another form.
    """
    name, _, op = text.partition("=")
    if not name or not op:
        raise UsageError("not a placement", where=f"--device {text}", hint="write NAME=OP, as in npu=Conv")
    return op, name


PARSERS: dict[str, Callable[[str], tuple[str, Any]]] = {"pin": parse_pin, "dim": parse_dim, "device": parse_device}
"""The parsers of options whose values are assignments; of two values for one name the last one counts."""


class Settings(SimpleNamespace):
    """The options of one model as attributes; `reads` has the files that they name for reading."""

    def updated(self, **values: Any) -> "Settings":
        """These options with other values."""
        return Settings(**{**vars(self), **values})

    def arguments(self, kind: Any = ModelOptions) -> dict[str, Any]:
        """The values of the options that a dataclass declares, as arguments of `layoutopt.optimize`."""
        return {each.name: getattr(self, key_of(each).replace("-", "_")) for each, _ in declared(kind)}

    def hardware(self) -> "tuple[CostModel, RuntimeSpec]":
        """The cost model of the target, and the runtime.

        Raises:
            ArgumentError, TargetError: there is no such target, runtime or dialect.
        """
        from layoutopt.driver.job import cost_model_of, runtime_and_dialect

        found = cost_model_of(self.target)
        return found, runtime_and_dialect(self.runtime, self.dialect, found)[0]

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
        sources = {name: context.get_parameter_source(name) for name in values}
        self._typed = {name for name, each in sources.items() if each and each.name in ("COMMANDLINE", "ENVIRONMENT")}
        self._values: dict[str, Any] = {name: each.default for name, each in OPTIONS.items()} | values
        self._values |= {name: () for name, value in self._values.items() if value is None and _is_list(name)}
        for name in self._typed & {name for name, each in OPTIONS.items() if each.metadata["option"].has_limits}:
            if (wrong := fault(OPTIONS[name], values[name])) is not None:
                raise UsageError(wrong, where=f"--{name.replace('_', '-')} {values[name]}", hint="correct the value")

    def __getattr__(self, name: str) -> Any:
        """The value of an option; its default if the command does not have it."""
        return self._values[name]

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
        typed = {name: self._values[name] for name in self._typed}
        values = self._values | self.configuration.options_for(model or Path()) | typed
        reads = [] if self.configuration.path is None else [self.configuration.path]
        reads += [Path(each) for each in values["target"].split(",") if each.endswith(".toml")]
        reads += [*values["inputs"], *values["custom_ops"], *([values["profile"]] if values["profile"] else [])]
        return Settings(**values | {name: dict(values[name]) for name in PARSERS}, reads=tuple(reads))


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
            run = getattr(import_deferring(f"layoutopt.cli.{module}"), function.__name__)
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


def complete_target(incomplete: str) -> list[str]:
    """The names of built-in targets that begin with a text, for shells."""
    from layoutopt.cost_models import target_names

    return [name for name in ("cpu", *target_names()) if name.startswith(incomplete)]


_DETAILS: dict[str, dict[str, Any]] = {
    "target": {"autocompletion": complete_target},
    "jobs": {"envvar": "LAYOUTOPT_JOBS"},
    "max_bytes_moved": {"parser": parse_bytes},
    **{name: {"parser": parse} for name, parse in PARSERS.items()},
}
