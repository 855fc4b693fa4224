"""The command `laser-vfl experiment`."""
