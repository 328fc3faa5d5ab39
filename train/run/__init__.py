"""A run in its steps: what it resumes from, its engine, its steps, and what it measures."""
