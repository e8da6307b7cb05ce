"""The processor of this machine: its name and instruction sets, from /proc/cpuinfo on Linux."""

import platform
from pathlib import Path

import numpy as np

_CPUINFO = Path("/proc/cpuinfo")


def processor_fields() -> dict[str, str]:
    """The fields that Linux reports of the first processor, such as `model name`; empty on other systems."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def processor_name() -> str:
    """The model name of the processor; its architecture if the system reports no name."""
    return processor_fields().get("model name") or platform.processor() or platform.machine()


def instruction_sets() -> set[str]:
    """The instruction set extensions, in lower case; on systems other than Linux those that numpy found for its kernels."""
    fields = processor_fields()
    if reported := fields.get("flags") or fields.get("Features"):
        return set(reported.split())
    extensions: dict[str, list[str]] = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[assignment]
    found = {name.lower() for key in ("baseline", "found") for name in extensions.get(key, [])}
    # numpy 2.4 reports the levels of the x86-64 psABI in the place of extensions.
    return found | ({"avx2"} if "x86_v3" in found else set()) | ({"avx512f"} if "x86_v4" in found else set())
