"""Training: estimators, objectives, the step, the trainer, checkpoints, runs."""
