"""The demo: a small web on loopback, a dump with votes for it, and every stage up to a trained GPT-2."""
