"""What a run takes, before it starts: memory, operations, time, cost, and a mesh that fits. Needs no torch."""
