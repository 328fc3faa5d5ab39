"""Reddit's and Hacker News' APIs: links harvested to files, and posts refreshed with today's scores."""
