"""Private alignment: which rows the clients have in common."""
