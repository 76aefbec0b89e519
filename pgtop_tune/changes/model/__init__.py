"""Changes as data: what is asked for, what was made, what is pending confirmation, what reverting came to."""
