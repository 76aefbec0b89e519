"""The baseline overlay: curves of an earlier run for the charts of a live one."""
