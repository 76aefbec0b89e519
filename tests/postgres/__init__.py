"""Tests of talking to the server: real ones."""
