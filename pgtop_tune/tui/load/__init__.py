"""Load on the screen: profiles, steps, data sets, results."""
