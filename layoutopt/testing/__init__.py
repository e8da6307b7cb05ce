"""The laws that extensions of every kind have to meet, for the tests of packages that extend layoutopt.

Each function asserts the laws of one kind of extension, on samples that its caller gives, and raises AssertionError with the
case that breaks one. The tests of layoutopt hold its own extensions to the same functions:

    from layoutopt.testing import check_rule, make_sample

    def test_mirror() -> None:
        check_rule(make_sample("y = acme.Mirror <axis = 3> (x)", x=(2, 17, 4, 5), function=MIRROR))

The names of this module follow semantic versioning, as those of `layoutopt.extend` do.
"""

from layoutopt.testing.cost_models import check_cost_model
from layoutopt.testing.dialects import check_dialect
from layoutopt.testing.formats import check_conversion, check_format, check_format_system
from layoutopt.testing.passes import check_pass
from layoutopt.testing.patterns import check_pattern
from layoutopt.testing.rules import check_rule
from layoutopt.testing.samples import Feed, Sample, make_sample, random_array

__all__ = [
    "Feed",
    "Sample",
    "check_conversion",
    "check_cost_model",
    "check_dialect",
    "check_format",
    "check_format_system",
    "check_pass",
    "check_pattern",
    "check_rule",
    "make_sample",
    "random_array",
]
