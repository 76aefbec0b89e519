"""Sampling: the live source of frames, and its samplers of server, host and poolers."""
