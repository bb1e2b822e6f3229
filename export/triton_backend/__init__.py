"""Files that are copied into a model repository for Triton's Python backend; they run there, not here."""
