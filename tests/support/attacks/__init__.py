"""Members and coordinators that attack."""
