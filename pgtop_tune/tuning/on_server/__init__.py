"""A search on a real server: evaluations, their journal, and words for what came of it."""
