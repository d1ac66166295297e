"""Subject-level cross-validation: one run, all runs of an experiment, and what their predictions show."""
