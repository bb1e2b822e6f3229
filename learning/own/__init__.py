"""Third-party rankers under our heads: a PyTorch backbone that is trained here, or an ONNX file that is only run."""
