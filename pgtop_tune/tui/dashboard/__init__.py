"""The dashboard: its panes and how they share the screen."""
