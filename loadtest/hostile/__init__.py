"""Hostile clients: a table of attacks with their public names, and processes that carry them out."""
