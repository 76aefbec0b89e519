"""Talking to the server: the only package that imports asyncpg or psycopg."""
