"""The vote score: a logistic regression over hashed n-grams that tells voted pages from background pages."""
