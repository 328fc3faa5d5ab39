"""Reddit's API: links harvested to files."""
