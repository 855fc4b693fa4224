"""The federation in one process, to compare with."""
