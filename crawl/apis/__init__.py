"""Reddit's and Hacker News' APIs: harvested to files, asked again for what became of posts."""
