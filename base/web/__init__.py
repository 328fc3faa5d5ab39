"""The web's own rules: URLs, HTTP heads, content codings, opt-outs in pages."""
