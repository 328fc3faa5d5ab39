"""robots.txt and tdmrep.json of a site: fetched, kept per origin, checked before its pages."""
