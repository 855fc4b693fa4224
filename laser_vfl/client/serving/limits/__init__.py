"""What each caller may take of this client: rates, memory, and alignments of made-up ids."""
