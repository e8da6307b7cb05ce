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
    """One fault of a model, and its correction by the reader.

    Attributes:
        where: the node, tensor or graph that is at fault, by name.
        fault: the fault.
        remedy: the correction.
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

    def is_confirmed(self) -> bool:
        """Whether ONNX Runtime loads the original model. The result is cached."""
        if self._is_confirmed is None:
            source = self.source
            self._is_confirmed = loads(source if isinstance(source, Path) else source.SerializeToString())
        return self._is_confirmed


def attach(model: ir.Model, repairs: Repairs) -> None:
    """Record the repairs of a model with the model."""
    model.meta[_META] = repairs


def repairs_of(model: ir.Model) -> Repairs | None:
    """The repairs that are recorded with a model; None for a model that `read` and `from_message` did not create."""
    found: Repairs | None = model.meta.get(_META)
    return found


def copy_repairs(model: ir.Model, origin: ir.Model) -> None:
    """Record the repairs of `origin` with a model that was derived from it."""
    if _META in origin.meta:
        model.meta[_META] = origin.meta[_META]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be repaired in place.

    Attributes:
        proto: the message.
        folder: the folder of its external data.
        undefined: the names of the parts with fields that ONNX does not define.
    """

    proto: onnx.ModelProto
    folder: DataFolder
    undefined: Sequence[str] = ()
