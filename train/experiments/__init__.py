"""Experiments: several training runs side by side, to compare corpora, settings or sizes."""
