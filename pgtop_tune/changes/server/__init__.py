"""Changes of the server's parameters: order, statements, journal, reading back, revert."""
