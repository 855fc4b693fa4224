"""The paper's tables and figures: training runs, side by side, and what they come to."""
