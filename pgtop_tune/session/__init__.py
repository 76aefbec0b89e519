"""The middle: takes frames from a source and hands them to sinks; keeps what the screen needs."""
