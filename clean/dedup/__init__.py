"""Find documents that are exact or near duplicates of another document."""
