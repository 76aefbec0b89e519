"""Dialogs that every feature uses: questions, prompts, forms, help."""
