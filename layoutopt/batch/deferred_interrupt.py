"""Ctrl-C that waits for a few statements which must not end half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Context manager within which Ctrl-C raises nothing; behind it, it has its usual effect.

    Without effect outside of the main thread, where Python raises no KeyboardInterrupt, and where a handler of another language
    is installed.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


__all__ = ["deferred_interrupt"]
