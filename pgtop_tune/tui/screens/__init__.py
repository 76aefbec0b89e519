"""Whole screens and the dialogs over them."""
