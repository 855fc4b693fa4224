"""The algorithm: pure functions of numpy and torch. No sockets, no files, no clock."""
