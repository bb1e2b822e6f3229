"""HTTP/2 as gRPC uses it (RFC 9113 and gRPC's PROTOCOL-HTTP2), server side: bytes in, events out.

It uses no sockets, threads, locks or callbacks: `ServerProtocol.receive` returns events, and `take_outgoing` returns
the bytes to send. `serving/transport` has the sockets and the threads.
"""
