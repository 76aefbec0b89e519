"""Rules that give a value for a parameter or a setting of the machine."""
