"""Processes that outlive a crash of the program: the guard of child programs and the revert watchdog."""
