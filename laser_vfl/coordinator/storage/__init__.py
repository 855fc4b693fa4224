"""What survives a restart of the coordinator."""
