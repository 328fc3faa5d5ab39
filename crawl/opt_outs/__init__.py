"""Opt-outs that a crawl checks at the site: robots.txt, fetched and cached per origin."""
