"""The tables of a configuration. A key has the name of its option, without the leading dashes; none is marked `TypedOnly`.

target = "cpu"                          options of all models
[budgets]                               limits of all models
[models."detector/*.onnx"]              options of the models that the pattern matches
[models."detector/*.onnx".budgets]      limits of these models
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments


def _checked(parse: Callable[[list[str]], object]) -> Any:
    """A validator of a list of assignments, which `parse` reads."""

    def check(values: list[str]) -> list[str]:
        try:
            parse(values)
        except UsageError as error:
            raise ValueError(f"{error.what}; {error.hint}") from error
        return values

    return AfterValidator(check)


Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(BaseModel):
    """Base class of the tables: keys have dashes, types are exact, unknown keys are errors."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-")
    )


class Budgets(Table):
    """Limits that the results of models must keep."""

    max_transposes: Limit | None = None
    max_casts: Limit | None = None
    max_bytes_moved: Limit | None = None
    min_speedup: Limit | None = None
    max_size_growth: Limit | None = None


class SharedOptions(Table):
    """Options that make sense for all models."""

    target: str | None = None
    runtime: str | None = None
    dialect: str | None = None
    mode: Literal["inference", "training"] | None = None
    dim: Annotated[list[str], _checked(assignments.parse_dim_ranges)] | None = None
    verify: bool | None = None
    allow_unverified: bool | None = None
    measure: bool | None = None
    threads: Annotated[int, Field(ge=1)] | None = None
    calibrate: bool | None = None
    profile: str | None = None
    time_limit: Positive | None = None
    max_growth: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    portable: bool | None = None
    sessions: Literal["balanced", "fast"] | None = None
    least: bool | None = None
    strict: bool | None = None


class ModelOptions(SharedOptions):
    """Options and limits of the models that one pattern matches."""

    pin: Annotated[list[str], _checked(assignments.parse_pins)] | None = None
    inputs: list[str] | None = None
    budgets: Budgets = Budgets()


class ConfigTable(SharedOptions):
    """A whole configuration."""

    jobs: Annotated[int, Field(ge=0)] | None = None
    budgets: Budgets = Budgets()
    models: dict[str, ModelOptions] = Field(default_factory=dict)


def keys(table: type[Table]) -> list[str]:
    """The keys of a table."""
    return [name.replace("_", "-") for name in table.model_fields]
