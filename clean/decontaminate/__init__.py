"""Find and remove text that the corpus shares with evaluation sets."""
