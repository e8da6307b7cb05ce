"""The name and the instruction sets of the processor, on Linux and on other systems."""

import platform
from pathlib import Path

import pytest

from layoutopt.kernel_times import Machine
from layoutopt.runtime import processor

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9R14
flags\t\t: fpu avx avx2 fma avx512f

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


def describe(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system report a processor."""
    file = folder / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(processor, "_CPUINFO", file)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def test_the_first_processor_of_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    describe(X86, monkeypatch, tmp_path)
    assert processor.processor_name() == "AMD EPYC 9R14"
    assert processor.instruction_sets() == {"fpu", "avx", "avx2", "fma", "avx512f"}
    machine = Machine.current()
    assert (machine.cpu, machine.instructions) == ("AMD EPYC 9R14 25 17", "avx avx2 avx512f fma")


def test_instruction_sets_of_other_systems_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = processor.instruction_sets()
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "none")
    assert processor.processor_fields() == {} and processor.processor_name()
    found = processor.instruction_sets()
    assert {"avx2", "avx512f"} & found == {"avx2", "avx512f"} & known
    assert Machine.current().instructions == ""
