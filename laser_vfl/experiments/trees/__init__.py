"""A federation beside boosted trees on real tables."""
