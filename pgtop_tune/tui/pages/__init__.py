"""Pages 2 to 9: what each shows, declared as columns over rows of the newest frames. No Textual here."""
