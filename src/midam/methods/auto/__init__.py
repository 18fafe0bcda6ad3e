"""`auto`: score a few methods by inner cross-validation, and average the best."""
