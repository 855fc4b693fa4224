"""What several test folders use, imported as `tests.support.<room>.<module>`."""
