"""Shell completion of target names."""


def complete_target(incomplete: str) -> list[str]:
    """The names of built-in targets that begin with a text."""
    from layoutopt.cost_models import target_names

    return [name for name in ("cpu", *target_names()) if name.startswith(incomplete)]
