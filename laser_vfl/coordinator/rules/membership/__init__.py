"""The members of a run, and how they change."""
