"""Readers of sections that need more than one SQL file, one module per topic."""
