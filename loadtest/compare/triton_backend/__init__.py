"""What runs inside Triton's Python backend; copied into a model repository, not imported here."""
