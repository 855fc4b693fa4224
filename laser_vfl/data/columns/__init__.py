"""The columns of a table: how each is read, scaled or coded, and kept in a manifest."""
