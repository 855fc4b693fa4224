"""Which alignment is under way, and what was submitted to it."""
