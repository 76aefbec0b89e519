"""Pages for Prometheus, read as Prometheus' own client library reads them."""

from __future__ import annotations

from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser

from pgtop_tune.export.openmetrics import Syntax

Labels = tuple[tuple[str, str], ...]


def families(text: str, syntax: Syntax = Syntax.OPENMETRICS) -> dict[str, Metric]:
    """Families by name; raises where the text is not valid."""
    read = openmetrics_parser if syntax is Syntax.OPENMETRICS else parser
    found = list(read.text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def values(text: str, syntax: Syntax = Syntax.OPENMETRICS) -> dict[tuple[str, Labels], float]:
    """Every sample by name and labels; none may stand there twice."""
    found: dict[tuple[str, Labels], float] = {}
    for family in families(text, syntax).values():
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found
