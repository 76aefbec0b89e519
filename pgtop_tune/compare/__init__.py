"""Two or more windows of measurements beside each other: effects, their uncertainty, and what may be said of them."""
