"""What a crawl would take, before it is begun."""
