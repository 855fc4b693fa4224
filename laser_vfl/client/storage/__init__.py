"""The state directory: checkpoints, models, records and keys on disk."""
