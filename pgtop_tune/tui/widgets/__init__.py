"""Widgets that draw lines and repaint only those that changed."""
