"""The command `laser-vfl plan`."""
