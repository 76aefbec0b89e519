"""What an operator does with the statement of a session: cancel, terminate, EXPLAIN."""
