"""Configuration files: YAML, checked in full before anything is opened."""
