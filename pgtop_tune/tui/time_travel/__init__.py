"""Moving through time: replay keys and the past of a live session."""
