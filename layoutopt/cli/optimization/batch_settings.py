"""The options of `optimize` that only several models have."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The options that only several models have.

    Attributes:
        jobs: the number of worker processes; 0 for none, None for the default.
        cluster: the URL of a cluster.
        cache: the folder of the cache.
    """

    jobs: int | None = None
    cluster: str | None = None
    cache: Path | None = None
