"""How runs of one setting differ on a machine and with a load, measured and kept."""
