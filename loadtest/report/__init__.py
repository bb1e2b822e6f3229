"""The report of a comparison: one HTML file that needs no network, and its pictures as PNG."""
