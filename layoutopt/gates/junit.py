"""The results of `ci` as JUnit XML: a test suite per model, a test case per check.

The library junitparser is installed by the extra `layoutopt[ci]`; without it the import raises a LayoutoptError.
"""

from collections.abc import Iterator
from xml.etree import ElementTree

from layoutopt.errors import LayoutoptError
from layoutopt.gates.report import BASELINE, PLAN, GateReport, ModelResult
from layoutopt.report.printable import printable

try:
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
except ModuleNotFoundError as error:
    if error.name != "junitparser":
        raise
    raise LayoutoptError(
        "JUnit reports need the package junitparser", hint="install it with: pip install 'layoutopt[ci]'"
    ) from error


def junit(report: GateReport) -> str:
    """The JUnit XML document of a run."""
    document = JUnitXml("layoutopt ci")
    for model in report.models:
        document.add_testsuite(_suite(model))
    document.update_statistics()
    root = ElementTree.fromstring(document.tostring())
    del root.attrib["skipped"]  # which the schema of Jenkins permits in a suite only
    return ElementTree.tostring(root, encoding="unicode")


def _suite(model: ModelResult) -> TestSuite:
    suite = TestSuite(printable(model.model))
    suite.add_property("target", printable(model.target))
    suite.add_property("runtime", printable(model.runtime))
    for key, value in (model.numbers.model_dump() if model.numbers is not None else {}).items():
        suite.add_property(key, str(value))
    for each in _cases(model):
        suite.add_testcase(each)
    return suite


def _cases(model: ModelResult) -> Iterator[TestCase]:
    yield _case(model, PLAN, seconds=round(model.seconds, 3))
    if model.status != "error":
        for check in [*model.budgets, *([BASELINE] if model.is_compared else [])]:
            yield _case(model, check)


def _case(model: ModelResult, check: str, seconds: float | None = None) -> TestCase:
    case = TestCase(check, printable(model.model), seconds)
    failure = Error if check == PLAN else Failure
    failures = [failure(printable(each), check) for each in model.messages("error", check=check)]
    case.result = failures or [Skipped(printable(each)) for each in model.messages("skipped", check=check)]
    if warnings := model.messages("warning", check=check):
        case.system_out = "\n".join(map(printable, warnings))
    return case
