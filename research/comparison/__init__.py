"""Many methods, same data, same effort: `ghostless evaluate table` and `ghostless evaluate ablation`."""
