"""Compares methods on the same data with the same tuning effort: `ghostless evaluate table`, `ghostless evaluate
ablation`."""
