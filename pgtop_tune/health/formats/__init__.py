"""A report in the formats of people and of pipelines."""
