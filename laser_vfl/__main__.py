"""`python -m laser_vfl` is the laser-vfl command."""

from laser_vfl.cli import main

main()
