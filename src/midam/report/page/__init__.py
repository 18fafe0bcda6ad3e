"""The pages about runs and comparisons: Python computes numbers and figures, and templates show them."""
