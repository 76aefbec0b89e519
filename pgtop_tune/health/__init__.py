"""The check before production: risks with evidence, a fix and its undo."""
