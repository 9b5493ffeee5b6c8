"""The training loop, checkpoints, evaluation and logging."""
