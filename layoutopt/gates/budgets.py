"""Budgets: the limits that an optimised model must keep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ByteSize, ConfigDict, Field, NonNegativeInt, ValidationError

from layoutopt.errors import ArgumentError
from layoutopt.files import path_text

BudgetValue: TypeAlias = float | str

_FORMS = {
    "max-transposes": "a whole number of 0 or more",
    "max-casts": "a whole number of 0 or more",
    "max-bytes-moved": "a number of bytes, as in 4096, 512kB or 12MB",
    "min-speedup": "a number above 0, as in 1.2",
    "max-size-growth": "a number above 0, as in 1.5",
}
_Ratio: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Budgets(BaseModel):
    """The budgets of one model; None where there is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_alias=True, validate_by_name=True)

    max_transposes: NonNegativeInt | None = Field(
        default=None, alias="max-transposes", description="Transposes and other view ops that move bytes"
    )
    max_casts: NonNegativeInt | None = Field(
        default=None, alias="max-casts", description="layout conversions that move bytes"
    )
    max_bytes_moved: Annotated[ByteSize, Field(ge=0)] | None = Field(
        default=None, alias="max-bytes-moved", description="bytes that these ops read and write in one run"
    )
    min_speedup: _Ratio | None = Field(
        default=None, alias="min-speedup", description="time of the original divided by that of the result"
    )
    max_size_growth: _Ratio | None = Field(
        default=None,
        alias="max-size-growth",
        description="bytes of all constants after and before, beyond a growth of 1 MiB",
    )


def budgets_of(model: Path, command_line: Mapping[str, BudgetValue], configured: Mapping[str, BudgetValue]) -> Budgets:
    """The budgets of a model: those of the command line, and for all other keys those of the configuration.

    Args:
        model: the file.
        command_line: values by key, such as {"max-bytes-moved": "12MB"}.
        configured: the same from the configuration.

    Raises:
        ArgumentError: there is no such budget, or a value is not valid.
    """
    try:
        return Budgets.model_validate({**configured, **command_line})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        is_option = key in command_line
        value = command_line[key] if is_option else configured[key]
        where = f"--{key} {value}" if is_option else f"{key} = {value}, the budget of {path_text(model)}"
        if key not in _FORMS:
            raise ArgumentError("no such budget", where=where, hint=f"there are {', '.join(_FORMS)}") from error
        raise ArgumentError("not a budget", where=where, hint=f"give {_FORMS[key]}") from error


__all__ = ["BudgetValue", "Budgets", "budgets_of"]
