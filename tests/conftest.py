"""Options of the test suite."""

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

# Results of tests are not to depend on the speed of the machine. Set before any test starts a process.
os.environ["LAYOUTOPT_NO_MEASURE"] = "1"

# Several models run in the process of the test; tests of worker processes request them.
os.environ["LAYOUTOPT_JOBS"] = "0"

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the results of the golden cases in tests/cases into their files",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def default_ctrl_c() -> Iterator[None]:
    """SIGINT interrupts this process and those that the test starts, also if a shell has started pytest in the background."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
