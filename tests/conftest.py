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
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)


def _is_thorough(config: pytest.Config) -> bool:
    return "thorough" in config.option.markexpr.replace("not thorough", "")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("thorough" if _is_thorough(config) else "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The thorough tier runs the laws that have random examples again, with more of them."""
    if _is_thorough(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.thorough)


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
