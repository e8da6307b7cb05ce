"""Stamp: metadata of an optimised model, with the options of the run and a fingerprint of the result.

A second run with the same options leaves a model with a matching stamp unchanged. An edited model has another fingerprint.
"""

import json
from collections.abc import Mapping
from typing import Any

from layoutopt.version import VERSION

KEY = "layoutopt"
"""The name of the metadata property."""


def stamp(options: Mapping[str, Any], fingerprint: str) -> str:
    """The stamp of a result as JSON: its options by name, the version, and the fingerprint."""
    return json.dumps({**options, "version": VERSION, "fingerprint": fingerprint}, sort_keys=True)


def has_stamp(metadata: Mapping[str, str], options: Mapping[str, Any], fingerprint: str) -> bool:
    """Whether metadata contains a stamp with these options and this fingerprint.

    `pin_axes` do not count: they follow from the pins and the model that was optimised, which a second run does not have.
    """
    try:
        recorded = json.loads(metadata.get(KEY, ""))
    except ValueError:
        return False
    if isinstance(recorded, dict):
        recorded.pop("pin_axes", None)
    return bool(recorded == json.loads(stamp(options, fingerprint)))
