"""The next start of a server: its place, and what its programs and rules say of values before they are written."""
