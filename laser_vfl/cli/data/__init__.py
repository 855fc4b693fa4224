"""The command `laser-vfl data`."""
