"""Actions on the sessions of others: cancel, terminate, EXPLAIN."""
