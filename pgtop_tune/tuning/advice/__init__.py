"""What others and we would start from: formulas over facts, never measured on this server."""
