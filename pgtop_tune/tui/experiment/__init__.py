"""Experiments on the screen: A against B by turns."""
