"""HTTP for people and for clients without gRPC: a process beside the workers, on the operations port.

relay.py runs in the process that owns the port and relays connections; everything else runs in the console's process,
which calls the workers over gRPC like any client (docs/console.md).
"""
