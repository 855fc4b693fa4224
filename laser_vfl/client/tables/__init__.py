"""The organisation's block: read, encoded, listed, erased."""
