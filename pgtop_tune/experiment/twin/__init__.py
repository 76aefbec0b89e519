"""The twin: two copies of a server under the same load in the same seconds, one with other settings."""
