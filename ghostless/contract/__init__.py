"""What a model file, a server and a client agree on. Needs numpy and the standard library only.

The modules are the surface, e.g. `from ghostless.contract import metadata`.
"""

__all__ = [
    "arrays",
    "cores",
    "distribution",
    "encoding",
    "errors",
    "http2_frames",
    "metadata",
    "model_file",
    "repository",
    "scores",
    "triton_parameters",
    "wire",
]
