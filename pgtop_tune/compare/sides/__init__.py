"""One side of a comparison, read from a recording or from records of runs."""
