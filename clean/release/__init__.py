"""Release a corpus without its texts."""
