"""Parameters on the screen: the list, staged changes, pending confirmation, restart."""
