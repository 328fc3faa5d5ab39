"""Optimizers, their schedule, and the update of a step."""
