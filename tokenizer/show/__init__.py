"""Tokens and tokenizers for human eyes: terminal, notebook, HTML page."""
