"""The results of `ci` as JUnit XML: a test suite per model, a test case per check."""

from xml.etree.ElementTree import Element, SubElement, tostring

from layoutopt.gates.report import BASELINE, PLAN, GateReport, ModelResult
from layoutopt.report.printable import printable

_COUNTED = {"tests": "testcase", "failures": "testcase[failure]", "errors": "testcase[error]"}


def junit(report: GateReport) -> str:
    """The JUnit XML document of a run."""
    document = Element("testsuites", name="layoutopt ci")
    for model in report.models:
        suite = SubElement(document, "testsuite", name=printable(model.model), time=f"{model.seconds:.3f}")
        properties = SubElement(suite, "properties")
        numbers = model.numbers.model_dump() if model.numbers is not None else {}
        for key, value in {"target": model.target, "runtime": model.runtime, **numbers}.items():
            SubElement(properties, "property", name=key, value=printable(str(value)))
        checks = [*model.budgets, *([BASELINE] if model.is_compared else [])] if model.status != "error" else []
        for check in (PLAN, *checks):
            _add_case(suite, model, check)
        for key, path in _COUNTED.items():
            suite.set(key, str(len(suite.findall(path))))
    for key in _COUNTED:
        document.set(key, str(sum(int(suite.get(key, "")) for suite in document)))
    return tostring(document, encoding="unicode")


def _add_case(suite: Element, model: ModelResult, check: str) -> None:
    case = SubElement(suite, "testcase", name=check, classname=printable(model.model))
    if check == PLAN:
        case.set("time", f"{model.seconds:.3f}")
    found = [(each.level, printable(each.message)) for each in model.findings if each.check == check]
    for message in (message for level, message in found if level == "error"):
        SubElement(case, "error" if check == PLAN else "failure", message=message, type=check)
    if warnings := [message for level, message in found if level == "warning"]:
        SubElement(case, "system-out").text = "\n".join(warnings)
