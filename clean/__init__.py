"""Pages to corpus: extraction, language, quality rules, dedup; each decision with its reason."""
