"""One client's models and how a step changes them."""
