"""Compares one forward pass with five: the variants take turns with the same requests, facade and engine."""
