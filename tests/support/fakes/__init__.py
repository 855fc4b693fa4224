"""Stand-ins in the same process, without a network or a training."""
