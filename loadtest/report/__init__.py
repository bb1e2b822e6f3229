"""The report of a comparison: one self-contained HTML file, and its plots as PNG files."""
