"""Reddit's API: listings harvested to files."""
