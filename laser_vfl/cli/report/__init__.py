"""The command `laser-vfl report`."""
