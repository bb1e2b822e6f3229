"""Formats that model files, servers and clients share. Needs only numpy and the standard library.

Import the modules, for example `from ghostless.contract import metadata`.
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
    "secret_files",
    "triton_parameters",
    "wire",
]
