"""Comparing on the screen: windows A and B, and the baseline overlay."""
