"""The command `laser-vfl certs`."""
