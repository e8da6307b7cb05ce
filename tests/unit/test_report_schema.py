"""The report is versioned data: docs/report.schema.json is its JSON schema, which loses no field within a version."""

import json
from pathlib import Path
from typing import Any

from layoutopt.report.schema import SCHEMA_VERSION, Report

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


def schema() -> dict[str, Any]:
    return {"$id": f"layoutopt-report-{SCHEMA_VERSION}", **Report.model_json_schema()}


def fields(found: dict[str, Any]) -> set[tuple[str, str]]:
    """The fields of a schema, as (part, field)."""
    parts = {"Report": found, **found["$defs"]}
    return {(name, field) for name, part in parts.items() for field in part.get("properties", ())}


def test_a_version_keeps_its_fields(update_golden: bool) -> None:
    published = json.loads(SCHEMA.read_text())
    if published["$id"] == schema()["$id"]:
        assert not fields(published) - fields(schema()), "a field is gone: increment SCHEMA_VERSION"
    if update_golden:
        SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
    assert json.loads(SCHEMA.read_text()) == schema(), "run this test with --update-golden"
