"""The dashboard: its panes, and their layout on the screen."""
