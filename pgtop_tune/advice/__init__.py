"""The one answer per setting: knobs, rules, proposals, and the formulas of known calculators."""
