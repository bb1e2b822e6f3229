"""The server's metrics, logs and traces. A request only writes a CallRecord; everything else happens in the background
(see recorder.py)."""
