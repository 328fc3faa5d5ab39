"""`webtext view`: a local, read-only page over a build, to search its documents and see why each is kept or dropped."""
