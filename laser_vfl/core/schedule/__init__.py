"""Which samples make up which step, and what a client does in it."""
