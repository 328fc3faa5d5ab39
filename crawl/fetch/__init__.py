"""Links to pages from the living web: polite, bounded, one row for every link."""
