"""Engines of the search: each chooses the candidates between the screen and the confirmation."""
