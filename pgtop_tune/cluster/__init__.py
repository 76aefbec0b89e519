"""A throwaway server for the demo and for tests."""
