"""Running the runs of an experiment side by side, and keeping their results."""
