"""The HTTP client: vetted addresses, connections, bounded bodies, and how a request can fail."""
