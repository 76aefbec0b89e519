"""What was seen: frozen structs, raw counters and gauges."""
