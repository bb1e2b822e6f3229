"""HTTP/2 as gRPC uses it (RFC 9113 and gRPC's PROTOCOL-HTTP2), on plain non-blocking sockets."""
