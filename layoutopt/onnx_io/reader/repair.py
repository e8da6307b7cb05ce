"""Repairs of a model file as the reader records them, and the draft that `repair_rules` repairs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.reader.external import DataFolder
from layoutopt.runtime.duplicate_definitions import loads

_META = "layoutopt.repairs"  # in the meta of a model of onnx_ir


@dataclass(frozen=True, slots=True)
class Repair:
    """One fault of a model, and what the reader did about it.

    Attributes:
        where: the node, tensor or graph that is at fault, by name.
        fault: the fault.
        remedy: what the reader put right.
    """

    where: str
    fault: str
    remedy: str

    @property
    def reason(self) -> str:
        """Fault and remedy in one sentence."""
        return f"{self.fault}: {self.remedy}"


Source: TypeAlias = Path | onnx.ModelProto


@dataclass(slots=True)
class Repairs:
    """The repairs of one model.

    Attributes:
        source: the file or message that the model was read from.
        found: the repairs, in the order in which they were made.
    """

    source: Source
    found: list[Repair] = field(default_factory=list)
    _is_confirmed: bool | None = None

    def confirm(self) -> bool:
        """Whether ONNX Runtime loads the original model. The answer is kept."""
        if self._is_confirmed is None:
            source = self.source
            self._is_confirmed = loads(source if isinstance(source, Path) else source.SerializeToString())
        return self._is_confirmed


def attach(model: ir.Model, repairs: Repairs) -> None:
    """Record the repairs of a model with the model."""
    model.meta[_META] = repairs


def repairs_of(model: ir.Model) -> Repairs | None:
    """The repairs that are recorded with a model; None for a model that `read` or `from_message` has not made."""
    found: Repairs | None = model.meta.get(_META)
    return found


def inherit_repairs(model: ir.Model, origin: ir.Model) -> None:
    """Record the repairs of `origin` with a model that was made of it."""
    if _META in origin.meta:
        model.meta[_META] = origin.meta[_META]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be repaired in place.

    Attributes:
        proto: the message.
        folder: where its external data is.
        undefined: the parts that have fields which ONNX does not define, by name.
    """

    proto: onnx.ModelProto
    folder: DataFolder
    undefined: Sequence[str] = ()
