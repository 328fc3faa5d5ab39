"""Sources of links, the karma rule, and one row for each canonical URL."""
