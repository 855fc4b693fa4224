"""Federations of real processes to which faults happen."""
