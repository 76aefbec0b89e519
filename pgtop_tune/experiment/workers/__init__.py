"""Units of work on several servers: one worker beside each server."""
