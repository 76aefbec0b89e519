"""Comparison of two windows of one session or of two recordings."""
