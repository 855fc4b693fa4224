"""Daemons seen from outside: what applications and operators ask of them. Without torch."""
