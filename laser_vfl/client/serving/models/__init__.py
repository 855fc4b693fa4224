"""The models that are served: published ones on disk, the current one, and the next."""
