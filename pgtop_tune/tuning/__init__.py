"""Search for better settings: which evaluation comes next, and what all together say. Pure: no clock, no I/O."""
