"""Link sources, the karma rule, and one row per canonical URL."""
