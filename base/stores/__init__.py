"""Object stores, and leases on the folders that runs write."""
