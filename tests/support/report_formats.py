"""What is wrong with a report of the check by the schema that is shipped."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema


def report_mistakes(report: Any) -> list[str]:
    """Return each mistake with its place; empty when the report fits."""
    return [f"{mistake.json_path}: {mistake.message}" for mistake in _schema().iter_errors(report)]


@cache
def _schema() -> jsonschema.protocols.Validator:
    schema = json.loads(files("pgtop_tune.health").joinpath("report.schema.json").read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)
