"""Remove documents whose votes were retracted, or whose removal was requested."""
