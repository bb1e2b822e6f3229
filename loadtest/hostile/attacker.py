"""One attacker's connections: sends what the attack prescribes, and reports how the server ends them.

`python -m loadtest.hostile.attacker` runs an attacker in its own process, until its standard input ends.
"""

import json
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ghostless.contract import http2_frames as f
from loadtest.hostile.attacks import Attack, Kind, Target
from loadtest.hostile.table import ATTACKS
from loadtest.hostile.tls_wire import HANDSHAKE_S, TlsWire

_HTTP1 = b"HTTP/1.1 "
# As the server encodes it: a literal without Huffman compression.
_STATUS = b"\x0bgrpc-status"
_READ_BYTES = 1 << 18
# Interval over which a rate is enforced.
_SLICE_S = 0.01
_LATE_READ_S = 0.5


@dataclass
class Report:
    """`ended`: connections by how they ended, and calls by how they were answered."""

    sent_bytes: int = 0
    connections: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Report") -> None:
        self.sent_bytes += other.sent_bytes
        self.connections += other.connections
        self.ended.update(other.ended)


class Answers:
    """Reads the server's answers, as far as they matter to an attacker."""

    def __init__(self, ended: Counter[str], wire: TlsWire | None = None) -> None:
        self._ended = ended
        self._wire = wire
        self._received = bytearray()
        self._is_http1 = False
        self.last_words = "closed"

    def take(self, received: bytes) -> None:
        self._received += received if self._wire is None else self._wire.open(received)
        if self._received.startswith(_HTTP1):
            self.last_words = f"http {self._received[9:12].decode()}"
            self._is_http1 = True
        at = 0
        while not self._is_http1 and len(self._received) - at >= f.FRAME_HEADER:
            high, low, kind, _flags, _number = f.parse_header(self._received, at)
            end = at + f.FRAME_HEADER + (high << 8 | low)
            if end > len(self._received):
                break
            self._take_frame(kind, bytes(self._received[at + f.FRAME_HEADER : end]))
            at = end
        del self._received[:at]

    def _take_frame(self, kind: int, payload: bytes) -> None:
        if kind == f.GOAWAY:
            self.last_words = f"goaway {int.from_bytes(payload[4:8])}"
        elif kind == f.RST_STREAM and any(payload):
            self._ended[f"reset {int.from_bytes(payload)}"] += 1
        elif kind == f.HEADERS:
            at = payload.find(_STATUS)
            if at >= 0:
                size = payload[at + len(_STATUS)]
                self._ended[f"status {payload[at + len(_STATUS) + 1 :][:size].decode()}"] += 1


@dataclass(frozen=True)
class Assault:
    """An attack on a server. `rate`: bytes per second and connection, 0 for as fast as possible. `source`: the
    attacker's address."""

    attack: Attack
    target: Target
    address: tuple[str, int]
    rate: float = 0.0
    source: str = "127.0.0.2"

    def run(self, has_time: Callable[[], bool]) -> Report:
        """Open one connection after the other while there is time; an attacker that waits opens only one."""
        report = Report()
        while has_time():
            report.add(self.connect_once(has_time))
            if self.attack.kind in (Kind.STALL, Kind.MANY):
                break
        return report

    def connect_once(self, has_time: Callable[[], bool]) -> Report:
        """Attack on one connection until the server ends it or the time is over."""
        report = Report()
        try:
            sock = self._connect()
        except OSError:
            report.ended["refused"] += 1
            time.sleep(_SLICE_S)
            return report
        with sock:
            report.connections += 1
            if self.attack.kind is Kind.HANDSHAKE:
                self._shake_hands(sock, report)
            else:
                self._attack(sock, has_time, report)
        return report

    def _connect(self) -> socket.socket:
        sock = socket.socket()
        if self.attack.receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.attack.receive_bytes)
        try:
            sock.settimeout(5)
            sock.bind((self.source, 0))
            sock.connect(self.address)
        except OSError:
            sock.close()
            raise
        return sock

    def _shake_hands(self, sock: socket.socket, report: Report) -> None:
        """Do a whole handshake; or send the attack's part of one and wait for the server's first answer."""
        hello = b"".join(piece for piece in self.attack.pieces(self.target) if isinstance(piece, bytes))
        try:
            if not hello:
                TlsWire(sock)
                return
            sock.settimeout(HANDSHAKE_S)
            sock.sendall(hello)
            is_closed = not sock.recv(_READ_BYTES)
        except TimeoutError:
            return  # the sink never answers
        except OSError:
            is_closed = True
        if is_closed:
            report.ended["closed"] += 1

    def _attack(self, sock: socket.socket, has_time: Callable[[], bool], report: Report) -> None:
        wire = None
        if self.attack.wire is not None:
            try:
                wire = self.attack.wire(sock)
            except OSError:
                report.ended["refused"] += 1
                return
        sock.setblocking(False)
        answers = Answers(report.ended, wire)
        pieces = self.attack.pieces(self.target)
        opening = self.attack.opening if wire is None else wire.seal(self.attack.opening)
        began, sent, rest, waits_until = time.monotonic(), 0, memoryview(opening), 0.0
        is_over = False
        while has_time() and not is_over:
            now = time.monotonic()
            if not rest and now >= waits_until:
                piece = next(pieces, None)
                if isinstance(piece, bytes):
                    rest = memoryview(piece if wire is None else wire.seal(piece))
                else:
                    waits_until = now + (3600.0 if piece is None else piece)
            may_send = bool(rest) and (not self.rate or sent < self.rate * (now - began))
            reads = [sock] if self.attack.reads else []
            readable, writable, _ = select.select(reads, [sock] if may_send else [], [], _SLICE_S)
            if readable:
                is_over = not _receive(sock, answers)
            if writable and not is_over:
                try:
                    size = sock.send(rest if not self.rate else rest[: max(1, int(self.rate * _SLICE_S))])
                except BlockingIOError:
                    continue
                except OSError:
                    is_over = True
                    continue
                sent, rest = sent + size, rest[size:]
            elif not self.attack.reads and not is_over:
                is_over = _has_ended(sock)
        report.sent_bytes += sent
        while is_over and _receive(sock, answers):
            """What came before the end."""
        if is_over:
            report.ended[answers.last_words] += 1


def _receive(sock: socket.socket, answers: Answers) -> bool:
    """Pass on what the server sent; False at the end of the connection."""
    try:
        received = sock.recv(_READ_BYTES)
    except BlockingIOError:
        return bool(select.select([sock], [], [], _LATE_READ_S)[0])
    except OSError:
        return False
    answers.take(received)
    return bool(received)


def _has_ended(sock: socket.socket) -> bool:
    """Whether the server closed its side or reset the connection, found without reading."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return any(events & (select.POLLHUP | select.POLLERR | select.POLLRDHUP) for _, events in poll.poll(0))


def attack_for(assault: Assault, connections: int, has_time: Callable[[], bool]) -> Report:
    """Attack from `connections` connections at once."""
    reports: list[Report] = []
    threads = [
        threading.Thread(target=lambda: reports.append(assault.run(has_time)), daemon=True) for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = Report()
    for report in reports:
        total.add(report)
    return total


def main() -> None:
    """Reads its arguments as a line of JSON and prints an empty line when the attack starts. The next input line stops
    the attack; then the report is printed as a line of JSON."""
    order = json.loads(sys.stdin.readline())
    attack = ATTACKS[order["attack"]]
    target = Target(order["path"], bytes.fromhex(order["message"]))
    assault = Assault(attack, target, (order["host"], order["port"]), order["rate"], order["source"])
    next(attack.pieces(target), None)  # some take long to build
    print(flush=True)
    stop = threading.Event()
    threading.Thread(target=partial(_stop_at_end_of_input, stop), daemon=True).start()
    report = attack_for(assault, order["connections"], lambda: not stop.is_set())
    stop.wait()
    print(json.dumps({"sent_bytes": report.sent_bytes, "connections": report.connections, "ended": report.ended}))


def _stop_at_end_of_input(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


if __name__ == "__main__":
    main()
