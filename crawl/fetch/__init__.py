"""Fetches pages from the live web: politely, with bounds, and with one row for every link."""
