"""A against B by turns in one run: blocks, their evaluation, the switching, and the record."""
