"""Estimates the time, traffic and disk space of a crawl before it starts."""
