"""The list of parameters behind `p`: its rows, what is staged, how it is drawn, and what becomes one set. Pure."""
