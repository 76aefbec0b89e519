"""Frames and the numbers made of them, in the formats that other programs read."""
