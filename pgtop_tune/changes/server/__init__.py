"""Changes of parameters of the server: order, statements, journal, read back, revert."""
