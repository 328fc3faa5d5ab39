"""GPT-2: its layers, loss, initial values, key/value cache, texts drawn from it, and Hugging Face folders of it."""
