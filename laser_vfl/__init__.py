"""LASER-VFL: vertical federated learning when blocks of features are missing."""

__version__ = "0.1.0"
