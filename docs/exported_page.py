"""The page of what can be exported, from the rows of `pgtop_tune.export`."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.export.catalogue import exported
from pgtop_tune.export.exported import DefaultRows, Exported, MetricKind

_WHERE = {
    DefaultRows.EVERYWHERE: "tables, OpenMetrics",
    DefaultRows.NOT_IN_TABLES: "OpenMetrics",
    DefaultRows.WHEN_NAMED: "when named",
}
_HEADS = ("metric", "unit", "name in OpenMetrics", "labels", "included in")


def exported_page() -> str:
    """Gauges, counters, and texts exported as labels."""
    parts = [
        "# Exported metrics\n",
        "The output of [`export`](../guide/export.md) and `record --openmetrics`. *Metric* is the name in\n"
        "tables and for `--metrics`, which also accepts the name in OpenMetrics; *unit* is the unit in tables.\n"
        "OpenMetrics uses base units, which the name gives. *Included in* lists the outputs that contain the metric\n"
        "without `--metrics`. For the meaning of the metrics, see [metrics](metrics.md).\n",
    ]
    for kind, heading in ((MetricKind.GAUGE, "Gauges"), (MetricKind.COUNTER, "Counters"), (MetricKind.INFO, "Texts")):
        parts += [f"## {heading}\n", table(_HEADS, [_cells(row) for row in exported() if row.kind is kind])]
    return "\n".join(parts)


def _cells(row: Exported) -> tuple[str, ...]:
    suffix = {MetricKind.GAUGE: "", MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}[row.kind]
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"`{row.id}`", plain(row.unit), f"`{row.exposed}{suffix}`", labels, _WHERE[row.default_for]
