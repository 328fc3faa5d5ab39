"""Worker processes: the engine that maps a function over parts, and the heartbeat that says at which record one died."""
