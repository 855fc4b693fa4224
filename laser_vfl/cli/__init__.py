"""The laser-vfl command."""

from laser_vfl.cli.main import main

__all__ = ["main"]
