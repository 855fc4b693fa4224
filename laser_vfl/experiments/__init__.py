"""The paper's tables and figures: settings, training runs side by side, what they come to."""
