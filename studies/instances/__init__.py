"""The study of instance scores: which number finds the instances that decide."""
