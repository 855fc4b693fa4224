"""The coordinator daemon: who is in the federation, which sample has which blocks, one seed."""
