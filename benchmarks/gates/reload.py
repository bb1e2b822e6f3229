"""Replaces certificates, revocation list and identities repeatedly under load: no call may fail."""

import ssl
import time

from benchmarks.gates.gates_bench import GatesBench, identity
from benchmarks.serve.steady_clients import SteadyClients
from ghostless.client import Tls
from loadtest.server_process import BenchError

_CANDIDATES = 64
_SEEN_WITHIN_S = 10.0
# The server limits how often an address may connect.
_BETWEEN_LOOKS_S = 0.02


def measure_reload(bench: GatesBench) -> None:
    bench.say(f"certificate, revocation list and identities replaced {bench.plan.reloads} times under load")
    text, token = identity("caller", 'calls = ["predict", "read"]')
    file = bench.write_identities("reload.toml", text)
    tls = Tls.from_files(bench.folder / "ca.pem", bench.folder / "ranker.pem", bench.folder / "ranker-key.pem")
    with bench.server(*bench.mutual_options, "--identities", str(file), tls=bench.tls) as server:
        # Clients that keep their connections, and clients that open a new one every few calls.
        staying = SteadyClients(server.address, bench.model, 2, _CANDIDATES, tls, token)
        coming = SteadyClients(server.address, bench.model, 2, _CANDIDATES, tls, token, calls_per_connection=3)
        served = 0
        with staying, coming:
            for number in range(bench.plan.reloads):
                bench.authority.issue_server("server", ["localhost", "127.0.0.1"], days=30 + number)
                bench.authority.revoke([])
                bench.write_identities("reload.toml", text + f"# {number}\n")
                _wait_until_served(server.port, (bench.folder / "server.pem").read_text())
                served += 1
                for clients in (staying, coming):
                    clients.until(clients.answers + 20)
    failures = [*staying.failures, *coming.failures]
    answers = staying.answers + coming.answers
    bench.say(f"  {answers} answers" + (f"; first failure: {failures[0]}" if failures else ""))
    bench.figures.add("failed calls during certificate reloads", len(failures), "== 0")
    bench.figures.add("certificates put in service under load", served, f"== {bench.plan.reloads}")


def _wait_until_served(port: int, certificate: str) -> None:
    """Wait until every worker serves the certificate. A connection goes to the worker with the fewest, so a few in a
    row reach all of them."""
    until = time.monotonic() + _SEEN_WITHIN_S
    in_a_row = 0
    while in_a_row < 8:
        shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=5.0)
        in_a_row = in_a_row + 1 if shown.strip() == certificate.strip() else 0
        time.sleep(_BETWEEN_LOOKS_S)
        if time.monotonic() > until:
            raise BenchError(f"a new certificate was not in service within {_SEEN_WITHIN_S:g} s")
