"""The check on the screen: findings, what is tagged, and tagged ones as a set of changes."""
