"""Takes pages from archives instead of the web, under the same rules."""
