"""The tokens of a run: sets and mixtures, batches read ahead, windows of held-out text."""
