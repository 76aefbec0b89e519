"""The running session: the engine and its thread, the newest frames, series for charts, ports of sources and sinks."""
