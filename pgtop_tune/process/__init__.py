"""Processes of ours that outlive a crash: the guard of child programs, the revert watchdog, the key of a process."""
