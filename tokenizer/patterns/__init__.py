"""Patterns that cut text into pieces: named ones, other expressions, and the checks of both."""
