"""Recordings: file format, writer, reader, replay source, history buffer."""
