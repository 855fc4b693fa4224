"""The command `laser-vfl doctor`."""
