"""The pages set: a fetch log in rolling parts, with WARC files and their CDXJ index."""
