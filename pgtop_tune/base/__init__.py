"""The ground that every other package stands on: errors, units, quoting, secrets, foreign text and directories, paths.

What belongs here needs only the standard library and msgspec, and knows nothing of frames or servers' sessions.
"""
