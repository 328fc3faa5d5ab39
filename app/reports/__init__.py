"""`webtext report`: one page about a build."""
