"""Quality rules: each compares one measured value (`signals.py`) with one threshold (`thresholds.py`)."""
