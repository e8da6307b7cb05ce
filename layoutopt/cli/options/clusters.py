"""Shell completion of the URLs of clusters."""

_URLS = ("dask://", "dask://local", "ray://", "ray://auto", "ray://local")


def complete_cluster(incomplete: str) -> list[str]:
    """The beginnings of URLs of clusters that begin with a text."""
    return [each for each in _URLS if each.startswith(incomplete)]
