"""The pictures of an experiment."""
