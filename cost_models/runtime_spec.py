"""Runtimes: the programs that run the written file, each described by a TOML file `runtimes/<name>.toml`.

    description = "any runtime: standard ONNX operators alone"
    runs_in = "every runtime that reads ONNX"   # the programs that can run the file
    dialects = ["standard"]                     # the dialects of files that it runs, the default first
    kernels = "standard"                        # kernels in canonical format only; "target": all kernels of the target
    engine = "openvino"                         # the adapter that runs files on this machine; none by default

    [[absorbs]]                                 # products that read an operand with its last two axes exchanged
    ops = ["MatMul"]
    dtypes = ["float32"]
    source = "measured: ..."

    [[fuses]]                                   # element-wise ops that are computed in the kernel before them
    family = "convolution"
    ops = ["Relu", "Clip"]
    source = "measured: ..."

A package adds runtimes as entry points `layoutopt.runtimes`, which refer to the path of such a file.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from layoutopt.cost import (
    Absorbed,
    CostModel,
    Epilogues,
    priced_with,
)
from layoutopt.cost_models.epilogues import EpilogueRule, find_epilogues
from layoutopt.cost_models.spec import (
    DTypeNames,
    SpecModel,
    Text,
    Texts,
    as_rows,
)
from layoutopt.cost_models.target_files import read_spec
from layoutopt.errors import ArgumentError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.registry import EntryPoints

RUNTIMES = Path(__file__).parent / "runtimes"
_DEFAULT_RUNTIME = "compiler"  # of a dialect that no runtime lists, such as one of an installed package


class AbsorbedTranspose(SpecModel):
    """Ops that read operands with their last two axes exchanged, at no cost.

    Attributes:
        ops: op types.
        dtypes: element types of the operands.
        source: the measurement or document that proves it.
    """

    ops: Texts
    dtypes: DTypeNames
    source: Text


class RuntimeSpec(SpecModel):
    """A runtime.

    Attributes:
        name: the name of the runtime.
        description: one line of text.
        runs_in: the programs that can run a file which is written for it.
        dialects: the dialects of files that it runs, the default first.
        kernels: "standard" if the runtime has only kernels for operands in canonical format; "target" if it has all kernels of
            the target.
        engine: the adapter of the program on this machine, with which kernels are timed and results are verified and measured;
            empty if there is none.
        is_emulated: whether onnxruntime on a CPU emulates the formats of the file.
        converts_in_kernels: whether an op in the canonical format runs in a kernel for another format where that is faster.
        absorbs: the Transposes that the runtime folds into products.
        fuses: the element-wise ops that it computes in the kernel before them.
    """

    tables = (AbsorbedTranspose, EpilogueRule)

    name: Text
    description: Text
    runs_in: Text
    dialects: Annotated[Texts, Field(min_length=1)]
    kernels: Literal["standard", "target"]
    engine: str = ""
    is_emulated: bool = False
    converts_in_kernels: bool = False
    absorbs: Annotated[tuple[AbsorbedTranspose, ...], BeforeValidator(as_rows)] = ()
    fuses: Annotated[tuple[EpilogueRule, ...], BeforeValidator(as_rows)] = ()

    def restricted(self, model: CostModel) -> CostModel:
        """The cost model of a target, or of several, with the kernels and conversions that this runtime has."""
        standard = self.dialects[0] if self.kernels == "standard" else ""
        if not standard and not self.converts_in_kernels:
            return model
        return priced_with(
            model, standard=standard, absorbed=self._absorbed(), converts_in_kernels=self.converts_in_kernels
        )

    def epilogues(self, graph: Graph) -> Epilogues:
        """The ops of a graph, before planning, that the runtime computes in the kernel before them."""
        return find_epilogues(graph, self.fuses)

    def reads(self, dialect: str) -> bool:
        """Whether files for this runtime can be written in a dialect."""
        return dialect in self.dialects or runtime_of(dialect).name == self.name

    def _absorbed(self) -> Absorbed:
        labels = {dtype.label: dtype for dtype in DType}
        return frozenset((op, labels[dtype]) for each in self.absorbs for op in each.ops for dtype in each.dtypes)


def _accepted(found: Any) -> RuntimeSpec:
    """The runtime that an entry point refers to."""
    if not isinstance(found, Path):
        raise TypeError(f"is no path of a runtime file but a {type(found).__name__}")
    return read_runtime(found)


EXTENSIONS: EntryPoints[RuntimeSpec] = EntryPoints("layoutopt.runtimes", _accepted)
"""Runtimes of installed packages."""


def runtime_names() -> tuple[str, ...]:
    """The runtimes: built-in ones, then those of installed packages."""
    return tuple(dict.fromkeys([*sorted(path.stem for path in RUNTIMES.glob("*.toml")), *EXTENSIONS.found]))


def find_runtime(name: object) -> RuntimeSpec:
    """The runtime with a name.

    Raises:
        ArgumentError: there is no such runtime.
        ExtensionError: it is the runtime of a package, and cannot be loaded.
    """
    names = runtime_names()
    if not isinstance(name, str) or name not in names:
        close = get_close_matches(str(name), names, n=1)
        guess = f"did you mean {close[0]}? There are" if close else "there are"
        where = name if isinstance(name, str) and name else f"runtime={name!r:.80}"
        raise ArgumentError("no such runtime", where=where, hint=f"{guess} {', '.join(names)}")
    path = RUNTIMES / f"{name}.toml"
    return read_runtime(path) if path.is_file() else EXTENSIONS[name]


def runtime_of(dialect: str) -> RuntimeSpec:
    """The first runtime that runs files of a dialect."""
    specs: Iterable[RuntimeSpec] = map(find_runtime, runtime_names())
    return next((spec for spec in specs if dialect in spec.dialects), find_runtime(_DEFAULT_RUNTIME))


@cache
def read_runtime(path: Path) -> RuntimeSpec:
    """The runtime that a file describes.

    Raises:
        TargetError: the file cannot be read, is not TOML, or violates the schema.
    """
    return read_spec(path, RuntimeSpec)
