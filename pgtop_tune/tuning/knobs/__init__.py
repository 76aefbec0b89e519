"""Parameters worth turning, as rows."""
