"""`webtext inspect`: what a build contains, and why."""
