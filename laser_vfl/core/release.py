"""The release of the software, as people and packages know it."""

__version__ = "0.2.0.dev0"
