"""What is going on, on stderr, for people who wait for longer than a second."""

import sys
from contextlib import AbstractContextManager
from threading import Lock, Timer
from types import TracebackType

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from layoutopt.cli.rendering.terminal import console

_PATIENCE = 1.0  # seconds


class Steps(AbstractContextManager["Steps"]):
    """Called with the name of every step as it begins; silent where stderr is no terminal."""

    def __init__(self, is_silent: bool = False) -> None:
        """Show nothing at all if `is_silent`."""
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._is_silent = is_silent or not sys.stderr.isatty()
        self._display = Progress(*columns, console=console(sys.stderr), transient=True)
        self._task = self._display.add_task("starting", total=None)
        self._timer = Timer(_PATIENCE, self._start)
        self._timer.daemon = True
        self._lock = Lock()
        self._is_over = False

    def __call__(self, step: str) -> None:
        """Name what begins."""
        self._display.update(self._task, description=step)

    def __enter__(self) -> "Steps":
        """Wait for a second before anything is shown."""
        if not self._is_silent:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave no trace."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._display.live.is_started:
                self._display.stop()

    def _start(self) -> None:
        with self._lock:
            if not self._is_over:
                self._display.start()
