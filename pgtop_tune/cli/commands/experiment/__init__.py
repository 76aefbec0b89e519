"""The commands of `pgtop-tune experiment`."""
