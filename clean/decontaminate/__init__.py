"""What the corpus shares with evaluation sets."""
