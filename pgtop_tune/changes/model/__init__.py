"""Changes as data: requests, changes made, sets pending confirmation, results of reverting."""
