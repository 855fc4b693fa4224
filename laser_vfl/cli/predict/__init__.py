"""The command `laser-vfl predict`."""
