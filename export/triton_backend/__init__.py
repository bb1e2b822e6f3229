"""What is copied into a model repository for Triton's Python backend; it runs there, not here."""
