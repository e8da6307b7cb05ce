"""Messages of errors in targets."""

import pytest

from layoutopt.errors import TargetError


def message(error: pytest.ExceptionInfo[TargetError]) -> str:
    """The message of an error, which has one line."""
    text = str(error.value)
    assert "\n" not in text
    assert error.value.exit_code == 4
    return text
