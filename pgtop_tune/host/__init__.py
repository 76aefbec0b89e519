"""The machine: the only package that reads /proc and /sys."""
