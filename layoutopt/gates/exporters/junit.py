"""The results of `ci` as JUnit XML: a test suite per model, a test case per check.

The library junitparser is installed by the extra `layoutopt[ci]`; without it the import raises a LayoutoptError.
"""

from collections.abc import Iterator, Sequence

from layoutopt.errors import LayoutoptError
from layoutopt.gates.findings import Finding, Rule
from layoutopt.gates.gate_report import GateReport, ModelResult

try:
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
except ModuleNotFoundError as error:
    if error.name != "junitparser":
        raise
    raise LayoutoptError(
        "JUnit reports need the package junitparser", hint="install it with: pip install 'layoutopt[ci]'"
    ) from error

_BASELINE_RULES = {Rule.REGRESSION, Rule.NOT_IN_BASELINE, Rule.CHANGED_MODEL, Rule.OTHER_SIZES}


def junit(report: GateReport) -> str:
    """The JUnit XML document of a run."""
    document = JUnitXml("layoutopt ci")
    for model in report.models:
        document.add_testsuite(_suite(model))
    document.update_statistics()
    content: bytes = document.tostring()
    return content.decode("utf-8")


def _suite(model: ModelResult) -> TestSuite:
    suite = TestSuite(xml_text(model.model))
    suite.add_property("target", xml_text(model.target))
    suite.add_property("runtime", xml_text(model.runtime))
    for key, value in (model.numbers.model_dump() if model.numbers is not None else {}).items():
        suite.add_property(key, str(value))
    for each in _cases(model):
        suite.add_testcase(each)
    return suite


def _cases(model: ModelResult) -> Iterator[TestCase]:
    errors = [each for each in model.findings if each.rule is Rule.MODEL_ERROR]
    case = _case(model, "plan", [])
    case.time = round(model.seconds, 3)
    case.result = [Error(xml_text(each.message), each.rule) for each in errors]
    yield case
    if errors:
        return
    for key in model.budgets:
        findings = [each for each in model.findings if each.rule == key or _is_unchecked(each, key)]
        yield _case(model, key, findings)
    if model.is_compared:
        findings = [each for each in model.findings if each.rule in _BASELINE_RULES]
        yield _case(model, "baseline", findings)


def _is_unchecked(finding: Finding, key: str) -> bool:
    return finding.rule is Rule.NOT_CHECKED and finding.message.startswith(f"{key} is not checked")


def _case(model: ModelResult, name: str, findings: Sequence[Finding]) -> TestCase:
    case = TestCase(name, xml_text(model.model))
    failures = [Failure(xml_text(each.message), each.rule) for each in findings if each.level == "error"]
    skipped = [Skipped(xml_text(each.message)) for each in findings if each.rule is Rule.NOT_CHECKED]
    case.result = failures or skipped
    warnings = [xml_text(each.message) for each in findings if each.level == "warning"]
    if warnings:
        case.system_out = "\n".join(warnings)
    return case


def xml_text(text: str) -> str:
    """The text with characters replaced that XML cannot represent, such as control characters in file names."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


__all__ = ["junit", "xml_text"]
