"""The command `laser-vfl align`."""
