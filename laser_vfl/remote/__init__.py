"""What applications and operators call on running daemons. Imports no torch."""
