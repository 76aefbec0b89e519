"""What binds now: the line at the top of every page, and the list behind it."""
