"""The results of `ci` as SARIF 2.1.0: one result per failed check, per warning and per op that still moves bytes."""

import hashlib
from typing import Any

from layoutopt.gates.report import Finding, GateReport, ModelResult, Rule, is_in_repository

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_RULES = {rule: number for number, rule in enumerate(Rule)}


def sarif(report: GateReport) -> dict[str, Any]:
    """The SARIF log of a run, as data for JSON."""
    driver = {
        "name": "layoutopt",
        "version": report.layoutopt_version,
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": rule.description},
                "defaultConfiguration": {"level": rule.level},
            }
            for rule in Rule
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not report.count("error")}],
        "artifacts": [_artifact(each) for each in report.models],
        "results": [
            _result(number, model, each) for number, model in enumerate(report.models) for each in model.findings
        ],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _artifact(model: ModelResult) -> dict[str, Any]:
    hashes = {"hashes": {"sha-256": model.sha256}} if model.sha256 else {}
    return {"location": _location(model), **hashes}


def _location(model: ModelResult) -> dict[str, Any]:
    base = {"uriBaseId": "%SRCROOT%"} if is_in_repository(model.uri) else {}
    return {"uri": model.uri, **base}


def _result(index: int, model: ModelResult, finding: Finding) -> dict[str, Any]:
    """One result; the region is the first line, which services that show results in files require."""
    physical = {"artifactLocation": {**_location(model), "index": index}, "region": {"startLine": 1}}
    node = {"name": finding.node, "fullyQualifiedName": finding.path, "kind": "node"}
    identity = "\0".join((model.uri, model.target, finding.rule, _subject(finding)))
    return {
        "ruleId": finding.rule,
        "ruleIndex": _RULES[finding.rule],
        "level": finding.level,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": physical, **({"logicalLocations": [node]} if finding.node else {})}],
        "partialFingerprints": {"primaryLocationLineHash": hashlib.sha256(identity.encode()).hexdigest()[:32]},
        "properties": {"target": model.target, "runtime": model.runtime},
    }


def _subject(finding: Finding) -> str:
    """The op or the number that a finding is about, so that a result keeps its fingerprint when only values change."""
    return finding.message.partition(":")[0] if finding.rule is Rule.REGRESSION else finding.path
