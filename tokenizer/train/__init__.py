"""Training: counting pieces and learning merges."""
