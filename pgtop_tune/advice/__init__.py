"""Advice: one value per setting, from knobs, rules and a joint proposal; and the formulas of known calculators."""
