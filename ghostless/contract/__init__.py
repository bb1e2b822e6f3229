"""What a model file, a server and a client agree on. Needs numpy and the standard library only.

The modules are the surface, e.g. `from ghostless.contract import metadata`.
"""

__all__ = [
    "arrays",
    "cores",
    "digests",
    "distribution",
    "encoding",
    "errors",
    "http2_frames",
    "item_draws",
    "metadata",
    "model_file",
    "pair_test",
    "repository",
    "scores",
    "triton_parameters",
    "wire",
]
