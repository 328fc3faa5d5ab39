"""One HTTP exchange: vetted addresses, polite turns, connections, bounded bodies, and how it can fail."""
