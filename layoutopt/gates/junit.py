"""The results of `ci` as JUnit XML: a test suite per model, a test case per check.

The library junitparser is installed by the extra `layoutopt[ci]`; without it the import raises a LayoutoptError.
"""

from collections.abc import Iterator
from xml.etree import ElementTree

from layoutopt.errors import LayoutoptError
from layoutopt.gates.report import GateReport, ModelResult, Rule
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
    errors = [each for each in model.findings if each.rule is Rule.MODEL_ERROR]
    case = TestCase("plan", printable(model.model))
    case.time = round(model.seconds, 3)
    case.result = [Error(printable(each.message), each.rule) for each in errors]
    yield case
    if errors:
        return
    for check in [*model.budgets, *(["baseline"] if model.is_compared else [])]:
        yield _case(model, check)


def _case(model: ModelResult, name: str) -> TestCase:
    findings = [each for each in model.findings if each.rule.check == name]
    case = TestCase(name, printable(model.model))
    failures = [Failure(printable(each.message), each.rule) for each in findings if each.level == "error"]
    skipped = [Skipped(printable(each.message)) for each in findings if each.rule is Rule.NOT_CHECKED]
    case.result = failures or skipped
    warnings = [printable(each.message) for each in findings if each.level == "warning"]
    if warnings:
        case.system_out = "\n".join(warnings)
    return case
