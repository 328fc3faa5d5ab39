"""Pages from archives instead of the web, under the same rules."""
