"""Experiments: several training runs side by side, and what they tell of the corpora that they read."""
