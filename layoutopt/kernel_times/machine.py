"""The properties of this machine that the time of a kernel depends on."""

import platform
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_INSTRUCTIONS = {
    *(
        "amx_int8",
        "amx_tile",
        "avx",
        "avx2",
        "avx512_bf16",
        "avx512_vnni",
        "avx512f",
        "avx512vl",
        "avx_vnni",
        "f16c",
        "fma",
    ),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that kernel times depend on, besides the kernel.

    Attributes:
        cpu: the name of the processor, with its family and model.
        instructions: its instruction sets for vectors and matrices.
        caches: the sizes of its caches.
        onnxruntime: the version.
        threads: of a session.
    """

    cpu: str
    instructions: str
    caches: str
    onnxruntime: str
    threads: int

    @classmethod
    def current(cls, threads: int = 1) -> "Machine":
        """This machine; what the system does not report is an empty text."""
        fields = _fields()
        flags = (fields.get("flags") or fields.get("Features") or "").split()
        names = (fields.get("model name") or platform.processor() or platform.machine(), fields.get("cpu family"))
        return cls(
            " ".join(each for each in (*names, fields.get("model")) if each),
            " ".join(sorted(_INSTRUCTIONS.intersection(flags))),
            " ".join(_text(path / "size") for path in sorted(_CACHES.glob("index*"))),
            str(onnxruntime.__version__),
            threads,
        )


def _fields() -> dict[str, str]:
    """The description of the first processor on Linux; empty on other systems."""
    first = _text(_CPUINFO).split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


__all__ = ["Machine"]
