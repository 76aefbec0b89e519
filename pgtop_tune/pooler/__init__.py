"""Admin consoles of connection poolers: PgBouncer and PgCat."""
