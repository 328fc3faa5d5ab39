"""Evaluation of a model: perplexity of held-out tokens, and the GPT-2 paper's evaluation sets."""
