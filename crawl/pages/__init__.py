"""The pages set: rolling parts of rows, WARC files and their index."""
