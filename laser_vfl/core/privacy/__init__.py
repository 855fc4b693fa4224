"""What may leave a client: bounded, noised or masked numbers."""
