"""What a run takes, before it starts: memory, operations, time, and a mesh that fits. Needs no torch."""
