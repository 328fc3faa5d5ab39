"""File formats of tokenizers, and tables of known pieces next to them."""
