"""Changes that take a restart: what is looked at before, the one restart, and the way back when it fails."""
