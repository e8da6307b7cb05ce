"""The properties of this machine that the time of a kernel depends on."""

from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from layoutopt.runtime.processor import processor_fields, processor_name, reported_instruction_sets

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
        """This machine; a property that the system does not report is an empty text."""
        fields = processor_fields()
        names = (processor_name(), fields.get("cpu family"), fields.get("model"))
        return cls(
            " ".join(each for each in names if each),
            " ".join(sorted(_INSTRUCTIONS & reported_instruction_sets())),
            " ".join(_text(path / "size") for path in sorted(_CACHES.glob("index*"))),
            str(onnxruntime.__version__),
            threads,
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


__all__ = ["Machine"]
