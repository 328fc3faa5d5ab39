"""Input files: found by name, folder or pattern, and read record by record."""
