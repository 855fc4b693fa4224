"""LASER-VFL: one representation model and one head a client, which share all subsets."""

from laser_vfl.core.method import Method


class Laser(Method):
    """Nothing differs: it is what `Method` describes, and what the core is made for."""
