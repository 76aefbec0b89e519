"""The health check: what will hurt in production, with evidence, a fix and its undoing."""
