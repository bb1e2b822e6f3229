"""What the paper compares with, on the same backbone and training loop: trained and judged, not served."""
