"""Connections to the server with both drivers, and the server's capabilities."""
