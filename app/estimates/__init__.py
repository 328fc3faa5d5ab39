"""`webtext build --sample`: the whole build, estimated from a sample of its links."""
