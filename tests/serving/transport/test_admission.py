"""How many connections there may be, and what an address that misbehaves may do."""

import socket
from dataclasses import dataclass

from serving.http2.errors import Closing
from serving.transport.admission import NO_LIMITS, Admission, ConnectionLimits

FLOOD, CLIENT = Closing.FLOOD, Closing.CLIENT


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_limits_in_all_and_of_a_peer() -> None:
    admission = Admission(ConnectionLimits(in_all=3, per_peer=2))
    assert [admission.admit("a") for _ in range(3)] == [None, None, Closing.TOO_MANY_OF_PEER]
    assert [admission.admit("b"), admission.admit("c")] == [None, Closing.TOO_MANY]
    admission.release("a", CLIENT)
    assert admission.admit("c") is None


def test_no_limits_and_unix_sockets() -> None:
    admission = Admission(NO_LIMITS)
    for _ in range(100):
        assert admission.admit("a") is None
        admission.release("a", FLOOD)
    admission = Admission(ConnectionLimits(in_all=1000, per_peer=1))
    assert [admission.admit("") for _ in range(5)] == [None] * 5


def test_an_address_that_misbehaves_is_refused_for_a_while() -> None:
    clock = Clock()
    admission = Admission(ConnectionLimits(per_peer=100), clock)
    for _ in range(16):
        assert admission.admit("bad") is None
        admission.release("bad", FLOOD)
    assert admission.admit("bad") is Closing.BAD_PEER
    assert admission.admit("good") is None
    clock.now += 0.5
    assert admission.admit("bad") is None
    admission.release("bad", FLOOD)
    assert admission.admit("bad") is Closing.BAD_PEER
    clock.now += 100
    assert admission.admit("bad") is None
    admission.release("bad", CLIENT)
    assert not admission._bad, "what is forgiven is forgotten"


def test_an_address_may_not_connect_again_and_again() -> None:
    """Each connection costs the server a handshake, even if the client closes it at once."""
    clock = Clock()
    admission = Admission(ConnectionLimits(per_peer=200), clock)

    def connect(peer: str) -> Closing | None:
        refused = admission.admit(peer)
        if refused is None:
            admission.release(peer, CLIENT)
        return refused

    assert [connect("hasty") for _ in range(200)] == [None] * 200
    assert connect("hasty") is Closing.TOO_FREQUENT
    assert connect("other") is None
    clock.now += 0.1
    assert [connect("hasty") for _ in range(26)] == [None] * 25 + [Closing.TOO_FREQUENT]
    clock.now += 100
    assert [connect("hasty") for _ in range(200)] == [None] * 200


def test_an_address_may_reconnect_even_if_it_may_have_few_connections() -> None:
    admission = Admission(ConnectionLimits(per_peer=1), Clock())
    for _ in range(64):
        assert admission.admit("a") is None
        admission.release("a", CLIENT)
    assert admission.admit("a") is Closing.TOO_FREQUENT


def test_a_refused_connection_of_a_bad_address_is_kept_waiting() -> None:
    """A client that is let go at once comes back at once."""
    clock = Clock()
    admission = Admission(ConnectionLimits(per_peer=100), clock)
    pairs = [socket.socketpair() for _ in range(200)]
    for mine, _ in pairs:
        admission.refuse(mine, Closing.BAD_PEER)
    assert sum(mine.fileno() >= 0 for mine, _ in pairs) == 128
    admission.let_go()
    assert sum(mine.fileno() >= 0 for mine, _ in pairs) == 128
    clock.now += 1.1
    admission.let_go()
    assert all(mine.fileno() < 0 for mine, _ in pairs)
    mine, other = socket.socketpair()
    admission.refuse(mine, Closing.TOO_MANY)
    assert mine.fileno() < 0
    for each in (other, *(other for _, other in pairs)):
        each.close()


def test_what_is_known_of_bad_addresses_is_bounded() -> None:
    admission = Admission(ConnectionLimits(per_peer=10), Clock())
    for number in range(10_000):
        admission.admit(str(number))
        admission.release(str(number), FLOOD)
    assert len(admission._bad) <= 4096
    assert len(admission._new) <= 4096
    assert not admission._of_peer
