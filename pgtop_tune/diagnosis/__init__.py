"""The bottleneck now: rules over the frames of a session, and the sentence that they come to."""
