"""Bags, where they come from, and how they are sampled."""
