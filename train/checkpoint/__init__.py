"""Checkpoints: the format, how tensors are stored, and saving while the run continues."""
