"""Token shards: pack, read memory-mapped, sample in a deterministic order, verify."""
