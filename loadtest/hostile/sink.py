"""A server that reads everything and answers nothing, to measure what an attacker costs the machine without a victim.

`python -m loadtest.hostile.sink` prints its port, and exits when its standard input ends.
"""

import selectors
import socket
import sys

_READ_BYTES = 1 << 18


def main() -> None:
    buffer = bytearray(_READ_BYTES)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, selectors.DefaultSelector() as selector:
        print(listener.getsockname()[1], flush=True)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                else:
                    _discard(selector, key.fileobj, buffer)


def _discard(selector: selectors.BaseSelector, sock: object, buffer: bytearray) -> None:
    assert isinstance(sock, socket.socket)
    try:
        received = sock.recv_into(buffer)
    except OSError:
        received = 0
    if not received:
        selector.unregister(sock)
        sock.close()


if __name__ == "__main__":
    main()
