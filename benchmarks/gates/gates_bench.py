"""What every stage of `ghostless bench gates` needs, and the differently secured servers that are compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ghostless.client import Client, Tls
from ghostless.client.calls import predict_call
from loadtest.figures import Figures
from loadtest.h2load import Generator
from loadtest.server_process import ServerProcess, running_server
from loadtest.workload import ServedModel
from serving.security.development_ca import CA, DevelopmentCa
from serving.security.tokens import new_token


@dataclass(frozen=True)
class GatesPlan:
    """How long to measure. Bounds are not part of it: they are the same for every plan."""

    rounds: int
    round_requests: int
    reloads: int
    timing_calls: int
    overload_s: float


FULL = GatesPlan(rounds=48, round_requests=3_000, reloads=20, timing_calls=20_000, overload_s=20.0)
QUICK = GatesPlan(rounds=6, round_requests=2_000, reloads=5, timing_calls=2_000, overload_s=5.0)


@dataclass(frozen=True)
class GatesBench:
    """`folder` belongs to the bench; it has a certificate authority, and the certificates of a server and of the client
    `ranker`."""

    repository: Path
    model: ServedModel
    h2load: str
    plan: GatesPlan
    figures: Figures
    folder: Path
    authority: DevelopmentCa

    def say(self, text: str) -> None:
        self.figures.console.print(text, highlight=False)

    @property
    def tls(self) -> Tls:
        """TLS settings of a client without a certificate."""
        return Tls.from_files(self.folder / CA)

    @property
    def server_options(self) -> list[str]:
        return ["--tls-cert", str(self.folder / "server.pem"), "--tls-key", str(self.folder / "server-key.pem")]

    @property
    def mutual_options(self) -> list[str]:
        """Server options to request client certificates and check them against the revocation list."""
        client = ["--tls-client-ca", str(self.folder / CA), "--tls-client-auth", "optional"]
        return [*self.server_options, *client, "--tls-crl", str(self.folder / "crl.pem"), "--poll-s", "0.1"]

    def write_identities(self, name: str, text: str) -> Path:
        path = self.folder / name
        draft = path.with_suffix(".new")
        draft.write_text(text)
        draft.chmod(0o600)
        draft.replace(path)
        return path

    @contextmanager
    def server(self, *options: str, tls: Tls | None = None) -> Iterator[ServerProcess]:
        with running_server(self.repository, *options, tls=tls) as running:
            yield running

    def generator(self, address: str, rows: int, tls: Tls | None = None, token: str | None = None) -> Generator:
        """h2load with one request, and the size of a correct answer to it. The request is first sent once, and must
        succeed."""
        drawn = self.model.rows(rows, seed=0)
        arguments = drawn.arguments(self.model.name)
        with Client(address, timeout_s=10.0, tls=tls, token=token, connections=1) as client:
            client.predict(**arguments)
        answer_bytes = 4 * sum(values.size for values in self.model.infer(drawn).values())
        headers = () if token is None else (f"authorization: Bearer {token}",)
        return Generator(
            self.h2load, predict_call(arguments).request, answer_bytes, tls=tls is not None, headers=headers
        )


def make_authority(folder: Path) -> DevelopmentCa:
    authority = DevelopmentCa(folder)
    authority.issue_server("server", ["localhost", "127.0.0.1"])
    authority.issue_client("ranker")
    authority.revoke([])
    return authority


def identity(name: str, *lines: str, expires: str = "") -> tuple[str, str]:
    """An identity's entry for the identities file, and its token."""
    token, key_id, digest = new_token()
    text = [f"[{name}]", *lines, f"[[{name}.tokens]]", f'id = "{key_id}"', f'sha256 = "{digest}"']
    if expires:
        text.append(f"expires = {expires}")
    return "\n".join(text) + "\n", token
