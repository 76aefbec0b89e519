"""The one way to change anything: settings of the server and of its machine, journaled, confirmed or reverted."""
