"""The demo: a small real web on loopback, a dump that votes for it, and the whole way to a trained GPT-2."""
