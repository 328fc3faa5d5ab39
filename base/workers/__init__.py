"""Worker processes: the engine that maps a function over parts, and the journal of records."""
