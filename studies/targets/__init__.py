"""Studies of targets other than two classes."""
