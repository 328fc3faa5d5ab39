"""From votes to links to pages: link sources, the karma rule, polite fetching, WARC."""
