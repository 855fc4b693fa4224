"""Which training runs an experiment takes, and their settings."""
