"""The release of the software, as people and packages know it."""

__version__ = "0.1.0"
