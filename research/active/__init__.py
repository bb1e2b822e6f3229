"""Active learning: strategies that choose which rows of a pool to label next, and how the model improves with them."""
