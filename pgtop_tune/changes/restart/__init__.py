"""Changes that need a restart: checks beforehand, the restart, and recovery if the server does not start."""
