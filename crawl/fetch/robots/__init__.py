"""What a site states in robots.txt and tdmrep.json: fetched, kept per origin, checked before its pages."""
