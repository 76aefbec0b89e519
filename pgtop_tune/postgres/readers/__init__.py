"""One module per topic that the reader asks about."""
