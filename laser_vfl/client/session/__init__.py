"""The conversation with the coordinator, and what it says of the other members."""
