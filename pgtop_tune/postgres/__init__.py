"""Talking to the server: its connections, and what is read over them."""
