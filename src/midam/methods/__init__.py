"""Methods: the trainer, the baselines and `auto`, behind one protocol."""
