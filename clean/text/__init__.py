"""The text of a document: its form, its size, and the words of scripts without spaces."""
