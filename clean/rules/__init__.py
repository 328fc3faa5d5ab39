"""Quality rules: each compares one measured value (`native/signals/`) with one threshold (`thresholds.py`)."""
