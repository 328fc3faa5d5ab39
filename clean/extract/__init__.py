"""Pages to documents: bodies are decoded, bounded, parsed and turned into text."""
