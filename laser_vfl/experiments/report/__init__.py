"""The tables of an experiment."""
