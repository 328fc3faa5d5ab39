"""`webtext build --dry-run`: the estimated size of a build."""
