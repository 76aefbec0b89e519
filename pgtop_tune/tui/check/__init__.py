"""The check on the screen: findings, tags, and the tagged fixes as one change set."""
