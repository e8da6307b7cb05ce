"""The base class of immutable values.

Python compiles generated source text for each `dataclass`, an eighth of a second in all before a command could start; msgspec
creates the same methods in C. Passes, ops, values and their types, and classes that msgspec cannot make, are dataclasses.
"""

from typing import dataclass_transform

from msgspec import Struct, field


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(Struct, frozen=True):
    """A value whose fields are declared as those of a dataclass."""
