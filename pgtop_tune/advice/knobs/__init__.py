"""Parameters worth turning, one row each: why, in which steps, what it costs."""
