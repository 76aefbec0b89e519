"""Changes that take a restart: checks before it, the restart, the way back when the server does not start."""
