"""State directories that an earlier release wrote, and how they were made."""
