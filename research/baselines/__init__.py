"""The methods that the paper compares with, on the same backbone and training loop. They are not served."""
