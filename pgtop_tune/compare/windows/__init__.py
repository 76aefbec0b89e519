"""Two windows of time compared."""
