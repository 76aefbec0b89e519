"""Pages 2 to 9 and 0: their tables, declared as columns over rows of the newest frames."""
