"""The paper's experiments: the settings of each data set and method."""
