"""Comparisons as text, Markdown, HTML and JSON."""
