"""What a model is worth: perplexity on held-out tokens."""
