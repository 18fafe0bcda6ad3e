"""`auto`: a few methods scored by inner cross-validation, and a mean of the best of them."""
