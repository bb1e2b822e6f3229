"""Which rows to label next: a pool of unlabelled rows, strategies that rank it, and the curves they lead to."""
