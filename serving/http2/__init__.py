"""HTTP/2 as gRPC uses it (RFC 9113 and gRPC's PROTOCOL-HTTP2), server side: bytes in, events out.

Nothing here knows sockets, threads or locks, and nothing calls back: `ServerProtocol.receive` returns events,
`take_outgoing` the bytes to send. `serving/transport` has the sockets and the threads.
"""
