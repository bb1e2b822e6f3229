"""Held-out pairs of rows against the epistemic variance that a run serves."""
