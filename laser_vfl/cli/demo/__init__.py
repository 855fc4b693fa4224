"""The command `laser-vfl demo`."""
