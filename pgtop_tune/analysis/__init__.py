"""Recordings and records of runs read whole: phases, fingerprints, comparisons, baselines and reports."""
