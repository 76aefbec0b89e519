"""Readings and requests: frozen structs with raw counters and gauges."""
