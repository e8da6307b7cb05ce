"""The store of kernel times: one file per machine, runtime and number of threads, in the user's cache folder.

    {"kernel_times": 9, "cpu": "AMD EPYC", "instructions": "avx2 fma", "caches": "32K 512K 32M", ...}
    ["layoutopt 0.1.0: Relu (float32[1,64,56,56]) 5e1f...", 0.000129, 0.011]

A line has a kernel, its seconds, or null if the runtime does not run it alone, and the seconds that timing it took. The first
line of a kernel counts, also where several processes append. A damaged line is ignored, and its kernel is timed again. If the
folder cannot be written, the times stay in memory.

A run requests kernels in an order that depends on the times of its earlier requests only, whatever else the store has. The
processor time that timing a kernel took counts against the budget of every run that requests it. So a second run makes the same
requests, gets the same times, and its budget ends at the same request: also if the first run was interrupted, if other models
were optimised in between, or if the machine is busy.

Kernels are timed in batches, and stored as if the machine always had one speed. The speed of a shared machine varies by up to a
half within minutes. Each batch includes a reference kernel, and the times of a batch are multiplied by (first time of the
reference / its time in the batch).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Annotated, NamedTuple, TypeAlias

import onnxruntime
import platformdirs
from msgspec.structs import asdict
from pydantic import Field, TypeAdapter, ValidationError

from layoutopt.ir.graph import Graph
from layoutopt.kernel_times.kernels import REFERENCE, LoweredKernel, time_kernels
from layoutopt.record import Record
from layoutopt.runtime.engines import Engine
from layoutopt.runtime.processor import instruction_sets, processor_fields, processor_name

_VERSION = 9
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_INSTRUCTIONS = """amx_int8 amx_tile avx avx2 avx512_bf16 avx512_vnni avx512f avx512vl avx_vnni f16c fma
asimd asimddp bf16 i8mm sve"""


class Machine(Record):
    """Everything that kernel times depend on, besides the kernel; properties that the system does not report are empty."""

    cpu: str
    instructions: str
    caches: str
    runtime: str  # name and version
    threads: int

    @classmethod
    def current(cls, threads: int = 1, engine: Engine | None = None) -> "Machine":
        """This machine, with a number of threads of a session in onnxruntime or in another engine."""
        fields = processor_fields()
        names = (processor_name(), fields.get("cpu family"), fields.get("model"))
        return cls(
            " ".join(each for each in names if each),
            " ".join(sorted(instruction_sets().intersection(_INSTRUCTIONS.split()))),
            " ".join(_text(path / "size").strip() for path in sorted(_CACHES.glob("index*"))),
            f"{engine.name} {engine.version}" if engine is not None else f"onnxruntime {onnxruntime.__version__}",
            threads,
        )


class StoredTime(NamedTuple):
    """The seconds of a run of a kernel, None if the runtime does not run it alone, and the processor time of timing it."""

    seconds: float | None
    cost: float


_Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_LINE = TypeAdapter(tuple[str, _Seconds | None, _Seconds])


def default_folder() -> Path:
    """The user's cache folder for kernel times."""
    return Path(platformdirs.user_cache_dir("layoutopt")) / "kernel_times"


class KernelStore:
    """The times of kernels on one machine, in a file of a folder, or in memory only."""

    def __init__(self, machine: Machine, folder: Path | None = None) -> None:
        self.machine = machine
        self.is_complete = False  # whether no kernel may be timed: all other kernels have estimates
        self._header = json.dumps({"kernel_times": _VERSION, **asdict(machine)})
        self.path = folder / f"{sha256(self._header.encode()).hexdigest()[:16]}.jsonl" if folder is not None else None
        self._times: dict[str, StoredTime] = {}
        if self.path is not None and _text(self.path).partition("\n")[0] in ("", self._header):
            self._times = _read(self.path)
        elif self.path is not None:  # the times of another machine
            with suppress(OSError):
                self.path.unlink()

    @classmethod
    def of_file(cls, path: Path) -> "KernelStore":
        """The times of a file, of this machine or another one, which is not changed.

        Raises:
            ValueError: it cannot be read, or is no file of kernel times.
        """
        try:
            header = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
            if (version := header.pop("kernel_times")) == _VERSION:
                store = cls(Machine(**header))
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError("is no file of kernel times") from None
        if version != _VERSION:
            raise ValueError(f"has kernel times of version {version}, and this layoutopt reads version {_VERSION}")
        store._times, store.is_complete = _read(path), True
        return store

    def get(self, key: str) -> StoredTime | None:
        """The time of a kernel; None if it was not timed."""
        return self._times.get(key)

    def add(self, times: Mapping[str, float | None], cost: float = 0.0) -> None:
        """Store the times of kernels that have none, by key, and the processor time that timing each of them took."""
        new = {key: StoredTime(seconds, cost) for key, seconds in times.items() if key not in self._times}
        self._times |= new
        if self.path is None or not new:
            return
        header = [] if self.path.exists() else [self._header]
        text = "".join(f"{line}\n" for line in (*header, *(json.dumps([key, *new[key]]) for key in new)))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            self.path = None  # the folder cannot be written
        else:
            self._times |= _read(self.path)  # another process may have written the first line of a kernel


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read(path: Path) -> dict[str, StoredTime]:
    """The first time of every kernel in a file, without damaged lines."""
    found: dict[str, StoredTime] = {}
    for line in _text(path).splitlines():
        with suppress(ValidationError):
            key, seconds, cost = _LINE.validate_json(line)
            found.setdefault(key, StoredTime(seconds, cost))
    return found


_BATCH = 32  # kernels
_CREATION_SHARE = 1 / 3  # of the time for a batch: two rounds take twice as long as the first runs of new sessions


class RequestedTimes:
    """The times of the kernels that one run has requested, within a budget of processor time for each thread of a session."""

    def __init__(self, store: KernelStore, max_seconds: float, engine: Engine | None = None) -> None:
        self.skipped: set[str] = set()  # the keys of kernels that were requested when the budget was spent
        self.num_newly_timed = 0  # kernels that got a time in this run
        self._store = store
        self._engine = engine
        self._seconds: dict[str, float | None] = {}
        self._remaining = max_seconds * store.machine.threads

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent, so that no further kernel gets a time."""
        return self._remaining <= 0

    def get(self, key: str) -> float | None:
        """The time of a kernel; None if it was not requested, or has none."""
        return self._seconds.get(key)

    def of_graphs(self, graphs: Sequence[Graph]) -> list[float | None]:
        """Request the times of lowered graphs, the most important ones first; None for those without a time."""
        models = [LoweredKernel(each) for each in graphs]
        self.request(models)
        return [self.get(each.key) for each in models]

    def request(self, kernels: Iterable[LoweredKernel]) -> bool:
        """Request the times of kernels, the most important ones first, and return whether there were new requests."""
        pending = [each for each in {each.key: each for each in kernels}.values() if each.key not in self._seconds]
        for number, kernel in enumerate(pending):
            if self.is_spent:
                self.skipped.update(each.key for each in pending[number:])
                return number > 0
            if self._store.get(kernel.key) is None and not self._store.is_complete:
                batch = pending[number : number + _BATCH]
                self._time([each for each in batch if self._store.get(each.key) is None])
            found = self._store.get(kernel.key) or StoredTime(None, 0.0)
            self._seconds[kernel.key] = found.seconds
            self._remaining -= found.cost
        return bool(pending)

    def _time(self, kernels: Sequence[LoweredKernel]) -> None:
        """Add the times of kernels to the store, scaled to the speed of the first reference; at least that of the first."""
        begin = process_time()
        found = time_kernels(
            kernels, self._store.machine.threads, begin + self._remaining * _CREATION_SHARE, self._engine
        )
        now, first = found.pop(REFERENCE), self._store.get(REFERENCE)
        scale = 1.0 if now is None or first is None or first.seconds is None else first.seconds / now
        times = {key: None if seconds is None else seconds * scale for key, seconds in found.items()}
        self._store.add({REFERENCE: now, **times}, (process_time() - begin) / len(found))
        self.num_newly_timed += sum(each is not None for each in times.values())
