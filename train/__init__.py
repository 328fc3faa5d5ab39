"""GPT-2: the model, its training loop, evaluation, sampling and export."""
