"""A well-behaved client next to a hostile one: measures how long its calls take, one every few milliseconds.

`python -m loadtest.hostile.bystander` reads its order as a line of JSON. Every further line is a duration in seconds,
which it answers with a line of JSON.
"""

import json
import sys
import time
from pathlib import Path

import grpc

# Interval between the starts of two calls. If a call takes longer, the next one starts immediately.
_EVERY_S = 0.004
_TIMEOUT_S = 20.0


def main() -> None:
    order = json.loads(sys.stdin.readline())
    message = bytes.fromhex(order["message"])
    with _channel(order["address"], order["ca"]) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(order["path"])
        call(message, timeout=_TIMEOUT_S)
        for line in sys.stdin:
            latencies_ms: list[float] = []
            failures: list[str] = []
            until = time.monotonic() + float(line)
            while (began := time.monotonic()) < until:
                try:
                    call(message, timeout=_TIMEOUT_S)
                except grpc.RpcError as error:
                    failures.append(str(error.code()) if isinstance(error, grpc.Call) else str(error))
                took = time.monotonic() - began
                latencies_ms.append(1000 * took)
                time.sleep(max(0.0, _EVERY_S - took))
            print(json.dumps({"latencies_ms": latencies_ms, "failures": failures}), flush=True)


def _channel(address: str, ca: str) -> grpc.Channel:
    """A channel, with TLS if `ca` names a file of certificate authorities."""
    if not ca:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(Path(ca).read_bytes()))


if __name__ == "__main__":
    main()
