"""What trains and scores one run of an experiment."""
