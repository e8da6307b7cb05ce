"""The store of kernel times."""

from pathlib import Path

from layoutopt.kernel_times import KernelStore, Machine

MACHINE = Machine("a processor", "avx2", "32K 1M", "1.32.0", 1)


def test_the_store_keeps_times_per_machine(tmp_path: Path) -> None:
    KernelStore(MACHINE, tmp_path).add({"Conv a": 1e-3})
    KernelStore(MACHINE, tmp_path).add({"Conv b": 2e-3})
    store = KernelStore(MACHINE, tmp_path)
    assert [store.get(key) for key in ("Conv a", "Conv b", "Conv c")] == [(1e-3, 0.0), (2e-3, 0.0), None]
    assert KernelStore(Machine("a processor", "avx2", "32K 1M", "1.32.0", 2), tmp_path).get("Conv a") is None


def test_the_first_time_of_a_kernel_counts(tmp_path: Path) -> None:
    """Also for another process that timed the kernel as well, and for a kernel that does not run alone."""
    first, second = KernelStore(MACHINE, tmp_path), KernelStore(MACHINE, tmp_path)
    first.add({"Conv a": 1e-3, "Loop": None}, cost=0.5)
    second.add({"Conv a": 2e-3, "Loop": 1e-3}, cost=0.25)
    for store in (first, second, KernelStore(MACHINE, tmp_path)):
        assert (store.get("Conv a"), store.get("Loop")) == ((1e-3, 0.5), (None, 0.5))


def test_damaged_lines_of_a_store_are_ignored(tmp_path: Path) -> None:
    KernelStore(MACHINE, tmp_path).add({"Conv a": 1e-3})
    (path,) = tmp_path.iterdir()
    path.write_text(
        path.read_text()
        + '[1]\n{"kernel": 3, "seconds": 1, "cost": 0}\n{"kernel": "b", "seconds": NaN, "cost": 0}\n{"kernel": "c"'
    )
    store = KernelStore(MACHINE, tmp_path)
    assert store.get("Conv a") == (1e-3, 0.0) and store.get("b") is None


def test_a_folder_that_cannot_be_written_keeps_times_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    store = KernelStore(MACHINE, file / "folder")
    store.add({"Conv a": 1e-3})
    assert store.get("Conv a") == (1e-3, 0.0) and file.read_text() == ""
