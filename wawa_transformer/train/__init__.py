"""The training loop, and what comes before and after it."""
