"""What was seen: frozen dataclasses, raw counters and gauges."""
