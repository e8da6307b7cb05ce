"""Pages of the Python API: directives of mkdocstrings for every public name."""

import inspect
from types import ModuleType

import layoutopt
from layoutopt import extend, testing
from layoutopt.bench import bench
from layoutopt.driver.options import BatchOptions, ModelOptions, Options, PlanOptions
from layoutopt.explanation.explain_model import ExplainOptions

_PYTHON = """\
# Python

Names of `layoutopt`, all importable from the package root, and `layoutopt.bench.bench`:
see [arguments](../cli.md#python-arguments).
"""
_ARGUMENTS = (Options, BatchOptions, ExplainOptions, ModelOptions, PlanOptions)
_EXTENSIONS = """\
# Interface for extensions

Names of `layoutopt.extend` and `layoutopt.testing`: see [extending](../extending.md).
"""


def python_page() -> str:
    """The names of the package root and of `layoutopt.bench`: functions, classes, errors."""
    found = {name: getattr(layoutopt, name) for name in layoutopt.__all__ if name != "__version__"}
    errors = {name: each for name, each in found.items() if isinstance(each, type) and issubclass(each, Exception)}
    functions = {name: each for name, each in found.items() if inspect.isfunction(each)}
    others = {name: each for name, each in found.items() if name not in errors | functions}
    parts = [_PYTHON]
    parts += ["## Functions\n", *map(_directive, functions.values())]
    parts += [_directive(bench)]
    parts += ["## Arguments\n", *map(_directive, _ARGUMENTS)]
    parts += ["## Classes\n", *map(_directive, others.values())]
    parts += [
        "## Errors\n",
        *map(_directive, sorted(errors.values(), key=lambda each: (each.exit_code, each.__name__))),
    ]
    return "\n".join(parts)


def extensions_page() -> str:
    """The names of `layoutopt.extend` and `layoutopt.testing`."""
    parts = [_EXTENSIONS]
    for module in (extend, testing):
        parts += [f"## {module.__name__}\n", *_directives(module)]
    return "\n".join(parts)


def _directives(module: ModuleType) -> list[str]:
    """Directives of the public names of a module that the package root does not have."""
    public = {name: getattr(module, name) for name in module.__all__ if name not in layoutopt.__all__}
    return [_directive(each) for each in public.values() if inspect.isfunction(each) or isinstance(each, type)]


def _directive(each: object) -> str:
    """The directive of mkdocstrings for a function or class, by the module that defines it."""
    return f"::: {each.__module__}.{each.__qualname__}\n"  # type: ignore[attr-defined]
