"""The pages about runs and comparisons: Python prepares numbers and figures, templates show them."""
