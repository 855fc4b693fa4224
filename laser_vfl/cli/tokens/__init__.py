"""The command `laser-vfl tokens`."""
