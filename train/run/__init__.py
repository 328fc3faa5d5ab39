"""A run: its start or resumption, its engine, its steps, and its measurements."""
