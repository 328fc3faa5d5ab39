"""Turn pages into documents: decode bodies, check bounds, parse HTML and extract the main text."""
