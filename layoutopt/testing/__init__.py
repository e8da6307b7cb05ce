"""The laws of layout rules and passes, for the tests of packages that extend layoutopt.

Each function asserts the laws of an extension on the samples of its caller, and raises AssertionError with the case that breaks
a law. The tests of layoutopt apply the same functions to its own ops and passes:

    from layoutopt.testing import check_rule, make_sample

    def test_mirror() -> None:
        check_rule(make_sample("y = acme.Mirror <axis = 3> (x)", x=(2, 17, 4, 5), function=MIRROR))

The names of this module follow semantic versioning, as those of `layoutopt.extend` do.
"""

from layoutopt.testing.laws import check_pass
from layoutopt.testing.rules import Feed, Sample, check_rule, make_sample, random_array

__all__ = ["Feed", "Sample", "check_pass", "check_rule", "make_sample", "random_array"]
