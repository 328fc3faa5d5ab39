"""HTML pages as webtext writes them: templates, one style, charts."""
