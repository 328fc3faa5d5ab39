"""Quality rules: each is one measured value (`signals.py`) and one threshold (`thresholds.py`)."""
