"""Connections to the server, of both drivers, and what the server allows."""
