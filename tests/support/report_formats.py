"""What is wrong with a report of the check by the schemas of its formats: ours, that of SARIF, Jenkins' of JUnit."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jsonschema
import xmlschema

_SCHEMAS: Final = Path(__file__).resolve().parents[1] / "health" / "schemas"


def report_mistakes(report: Any) -> list[str]:
    """Of a report in our own JSON, each with its place; empty when it fits."""
    return _mistakes(_ours(), report)


def sarif_mistakes(log: Any) -> list[str]:
    """The same of a SARIF log."""
    return _mistakes(_sarif(), log)


def junit_mistakes(text: str) -> list[str]:
    """The same of a JUnit file."""
    return [f"{each.path}: {each.reason}" for each in _junit().iter_errors(text)]


def _mistakes(schema: jsonschema.protocols.Validator, value: Any) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in schema.iter_errors(value)]


@cache
def _ours() -> jsonschema.protocols.Validator:
    return _validator(files("pgtop_tune.health").joinpath("report.schema.json").read_text(encoding="utf-8"))


@cache
def _sarif() -> jsonschema.protocols.Validator:
    return _validator((_SCHEMAS / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))


def _validator(text: str) -> jsonschema.protocols.Validator:
    schema = json.loads(text)
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


@cache
def _junit() -> xmlschema.XMLSchema10:
    return xmlschema.XMLSchema10(_SCHEMAS / "junit-10.xsd", allow="local")
