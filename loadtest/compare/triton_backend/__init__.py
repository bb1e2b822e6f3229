"""Code that runs inside Triton's Python backend. It is copied into a model repository and not imported here."""
