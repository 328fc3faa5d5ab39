"""The visit of one link, whatever source is asked: what is recorded, the rules for answers, and the settings."""
