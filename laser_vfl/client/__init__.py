"""The client daemon of one organisation: its block, its models, its links to the others."""
