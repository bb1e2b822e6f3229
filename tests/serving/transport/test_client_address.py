"""How a client is named by its address."""

import socket

import pytest

from serving.transport.client_address import peer_in_grpc_notation, peer_of


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.1", 5000), "10.0.0.1"),
        (("2001:db8:1:2:aaaa::1", 5000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:bbbb::9", 6000, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 6000, 0, 2), "fe80::/64"),
        (("::ffff:10.0.0.1", 6000, 0, 0), "10.0.0.1"),
        ("", ""),
        (b"", ""),
    ],
)
def test_clients_are_told_apart_by_address_or_network(address: object, peer: str) -> None:
    assert peer_of(address) == peer


@pytest.mark.parametrize(("family", "prefix"), [(socket.AF_INET, "ipv4:127.0.0.1:"), (socket.AF_INET6, "ipv6:::1:")])
def test_addresses_are_written_as_grpc_writes_them(family: socket.AddressFamily, prefix: str) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        accepted, address = listener.accept()
        with client, accepted:
            assert peer_in_grpc_notation(accepted) == f"{prefix}{address[1]}"


def test_the_address_of_a_unix_socket_and_of_a_lost_connection() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_in_grpc_notation(one) == "unix:"
    unconnected = socket.socket()
    with unconnected:
        assert peer_in_grpc_notation(unconnected) == "unknown"
