"""The organisations among which data sets are shared out."""

ORGANISATIONS = ("bank", "shop", "telco", "clinic", "school", "airline", "library", "museum")
