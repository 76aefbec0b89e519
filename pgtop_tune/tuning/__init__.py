"""Parameters as knobs: what pg_settings does not know about them."""
