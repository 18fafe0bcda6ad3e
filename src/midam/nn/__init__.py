"""Encoders, pooling heads and the scorer that joins them."""
