"""The steps of a run at one client, and how far it is."""
