"""Text or a generated task as batches of ids."""
