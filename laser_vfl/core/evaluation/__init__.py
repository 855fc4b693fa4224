"""How well each subset of blocks predicts, and what each block is worth."""
