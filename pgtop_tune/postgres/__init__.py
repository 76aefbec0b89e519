"""The server: its connections, sections, SQL and statements; the only package that imports asyncpg."""
