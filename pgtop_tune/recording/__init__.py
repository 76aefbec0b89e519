"""JSON on disk: format, writer, reader, and the replayed source of frames."""
