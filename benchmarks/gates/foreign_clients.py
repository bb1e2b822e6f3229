"""Third-party clients against a server with TLS and identities: each must get its answer."""

import asyncio
import importlib.util
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import h2.config
import h2.connection
import h2.events
import tritonclient.grpc
import tritonclient.grpc.aio

from benchmarks.gates.gates_bench import GatesBench, identity
from ghostless.client.calls import predict_call
from ghostless.v1 import prediction_pb2 as pb
from loadtest.programs import find_program
from loadtest.server_process import BenchError

_METHOD = "/ghostless.v1.PredictionService/Predict"
_ROWS = 5
_NODE = Path(__file__).resolve().parents[2] / "examples" / "node"
_TIMEOUT_S = 20.0


class MissingClientError(Exception):
    """The client is not installed here."""


@dataclass(frozen=True)
class Place:
    """The server, what to send to it, and a folder that has ca.pem and room for temporary files."""

    port: int
    folder: Path
    token: str
    message: bytes
    model: str

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.address}{_METHOD}"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def body(self) -> bytes:
        return struct.pack(">BI", 0, len(self.message)) + self.message

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),)


def _rows(body: bytes) -> int:
    """Number of rows of the answer in a gRPC message."""
    return pb.PredictResponse.FromString(body[5:]).rows


def ask_grpcio(place: Place) -> int:
    credentials = grpc.ssl_channel_credentials(place.ca.read_bytes())
    with grpc.secure_channel(place.address, credentials) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
        answer = method(place.message, timeout=_TIMEOUT_S, metadata=place.metadata)
    return pb.PredictResponse.FromString(answer).rows


def ask_grpc_aio(place: Place) -> int:
    async def ask() -> bytes:
        credentials = grpc.ssl_channel_credentials(place.ca.read_bytes())
        async with grpc.aio.secure_channel(place.address, credentials) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
            return await method(place.message, timeout=_TIMEOUT_S, metadata=place.metadata)

    return pb.PredictResponse.FromString(asyncio.run(ask())).rows


def ask_tritonclient(place: Place) -> int:
    with tritonclient.grpc.InferenceServerClient(place.address, ssl=True, root_certificates=str(place.ca)) as client:
        found = client.get_model_metadata(place.model, headers=dict(place.metadata))
    return _ROWS if found.name == place.model else 0


def ask_tritonclient_aio(place: Place) -> int:
    async def ask() -> str:
        secured = tritonclient.grpc.aio.InferenceServerClient(place.address, ssl=True, root_certificates=str(place.ca))
        async with secured as client:
            found = await client.get_model_metadata(place.model, headers=dict(place.metadata))
        return str(found.name)

    return _ROWS if asyncio.run(ask()) == place.model else 0


def ask_curl(place: Place) -> int:
    (place.folder / "body").write_bytes(place.body)
    command = ["curl", "--silent", "--http2", "--cacert", str(place.ca), "--data-binary", f"@{place.folder / 'body'}"]
    for name in ("content-type: application/grpc", "te: trailers", f"authorization: Bearer {place.token}"):
        command += ["--header", name]
    return _rows(_output([*command, place.url]))


def ask_nghttp(place: Place) -> int:
    (place.folder / "body").write_bytes(place.body)
    command = [_program("nghttp"), "--data", str(place.folder / "body")]
    for name in ("content-type: application/grpc", "te: trailers", f"authorization: Bearer {place.token}"):
        command.append(f"--header={name}")
    return _rows(_output([*command, place.url]))


def ask_h2load(place: Place) -> int:
    (place.folder / "body").write_bytes(place.body)
    command = [_program("h2load"), "-n", "10", "-c", "2", "-d", str(place.folder / "body")]
    for name in ("content-type: application/grpc", "te: trailers", f"authorization: Bearer {place.token}"):
        command.append(f"-H{name}")
    text = _output([*command, place.url]).decode()
    return _ROWS if "10 succeeded" in text and "0 failed" in text else 0


def ask_grpc_js(place: Place) -> int:
    if not (_NODE / "node_modules").is_dir():
        raise MissingClientError("make examples installs it")
    script = """
const grpc = require("@grpc/grpc-js"), fs = require("node:fs");
const [address, ca, token, message] = process.argv.slice(1);
const client = new grpc.Client(address, grpc.credentials.createSsl(fs.readFileSync(ca)));
const metadata = new grpc.Metadata();
metadata.set("authorization", "Bearer " + token);
const same = (value) => value;
client.makeUnaryRequest("METHOD", same, same, fs.readFileSync(message), metadata, (error, answer) => {
  if (error) { console.error(error.message); process.exit(1); }
  process.stdout.write(answer);
  client.close();
});
""".replace("METHOD", _METHOD)
    return _node(place, script, place.message, lambda answer: pb.PredictResponse.FromString(answer).rows)


def ask_node_http2(place: Place) -> int:
    script = """
const http2 = require("node:http2"), fs = require("node:fs");
const [address, ca, token, message] = process.argv.slice(1);
const session = http2.connect("https://" + address, { ca: fs.readFileSync(ca) });
const headers = { ":method": "POST", ":path": "METHOD", "content-type": "application/grpc", te: "trailers" };
const stream = session.request({ ...headers, authorization: "Bearer " + token });
stream.on("data", (piece) => process.stdout.write(piece));
stream.on("end", () => session.close());
stream.end(fs.readFileSync(message));
""".replace("METHOD", _METHOD)
    return _node(place, script, place.body, _rows)


def ask_hyper_h2(place: Place) -> int:
    context = ssl.create_default_context(cafile=str(place.ca))
    context.set_alpn_protocols(["h2"])
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
    body = bytearray()
    plain = socket.create_connection(("localhost", place.port), _TIMEOUT_S)
    with context.wrap_socket(plain, server_hostname="localhost") as secured:
        connection.initiate_connection()
        headers = [(":method", "POST"), (":scheme", "https"), (":path", _METHOD), (":authority", place.address)]
        headers += [("content-type", "application/grpc"), ("te", "trailers"), *place.metadata]
        connection.send_headers(1, headers)
        connection.send_data(1, place.body, end_stream=True)
        is_open = True
        while is_open:
            secured.sendall(connection.data_to_send())
            for event in connection.receive_data(secured.recv(1 << 16)):
                if isinstance(event, h2.events.DataReceived):
                    body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    is_open = False
    return _rows(bytes(body))


_GRPCLIB = """
import asyncio, ssl, sys
from grpclib.client import Channel, UnaryUnaryMethod
from ghostless.v1 import prediction_pb2 as pb

async def ask(port, ca, token, message):
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    async with Channel("localhost", int(port), ssl=context) as channel:
        method = UnaryUnaryMethod(channel, "METHOD", pb.PredictRequest, pb.PredictResponse)
        request = pb.PredictRequest.FromString(open(message, "rb").read())
        return await method(request, timeout=20, metadata={"authorization": "Bearer " + token})

sys.stdout.buffer.write(asyncio.run(ask(*sys.argv[1:])).SerializeToString())
""".replace("METHOD", _METHOD)


def ask_grpclib(place: Place) -> int:
    """Runs in a separate process: grpclib leaves closing its transport to the event loop, which may end first."""
    if importlib.util.find_spec("grpclib") is None:
        raise MissingClientError("pip install grpclib")
    (place.folder / "body").write_bytes(place.message)
    arguments = [str(place.port), str(place.ca), place.token, str(place.folder / "body")]
    answer = _output([sys.executable, "-c", _GRPCLIB, *arguments])
    return pb.PredictResponse.FromString(answer).rows


def _values(column: pb.Column) -> list[object]:
    return list(getattr(column, str(column.WhichOneof("kind"))).values)


def ask_own_command(place: Place) -> int:
    """The project's own command, as a user would type it."""
    (place.folder / "token").write_text(place.token)
    (place.folder / "token").chmod(0o600)
    request = pb.PredictRequest.FromString(place.message)
    context = {name: _values(column)[0] for name, column in request.context.items()}
    columns = {"context": context, "candidates": {name: _values(column) for name, column in request.candidates.items()}}
    command = ["ghostless", "predict", "--address", place.address, "--ca", str(place.ca), "--format", "json"]
    command += ["--token-file", str(place.folder / "token"), "--model", place.model, "--request", json.dumps(columns)]
    return int(json.loads(_output([sys.executable, "-m", *command]))["rows"])


CLIENTS: dict[str, Callable[[Place], int]] = {
    "grpcio": ask_grpcio,
    "grpc.aio": ask_grpc_aio,
    "tritonclient": ask_tritonclient,
    "tritonclient.aio": ask_tritonclient_aio,
    "curl": ask_curl,
    "nghttp": ask_nghttp,
    "h2load": ask_h2load,
    "grpc-js": ask_grpc_js,
    "node http2": ask_node_http2,
    "hyper-h2": ask_hyper_h2,
    "grpclib": ask_grpclib,
    "ghostless predict": ask_own_command,
}


def measure_foreign_clients(bench: GatesBench) -> None:
    bench.say(f"{len(CLIENTS)} clients over TLS with a token")
    text, token = identity("caller", 'calls = ["predict", "read"]')
    file = bench.write_identities("foreign.toml", text)
    message = predict_call(bench.model.rows(_ROWS, seed=0).arguments(bench.model.name)).request
    failed, asked = 0, 0
    with bench.server(*bench.server_options, "--identities", str(file), tls=bench.tls) as server:
        place = Place(server.port, bench.folder, token, message, bench.model.name)
        for name, ask in CLIENTS.items():
            try:
                rows = ask(place)
            except MissingClientError as error:
                bench.figures.skip(name, str(error))
                continue
            except Exception as error:
                bench.say(f"  {name}: {error!r}"[:300])
                rows = 0
            asked += 1
            failed += rows != _ROWS
            bench.say(f"  {name}: {rows} rows")
    # Eleven third-party clients, and the project's own.
    bench.figures.add("clients tested", asked, ">= 12")
    bench.figures.add("clients without a correct response over TLS", failed, "== 0")


def _node(place: Place, script: str, message: bytes, rows_of: Callable[[bytes], int]) -> int:
    if shutil.which("node") is None:
        raise MissingClientError("there is no node here")
    (place.folder / "body").write_bytes(message)
    command = ["node", "-e", script, place.address, str(place.ca), place.token, str(place.folder / "body")]
    return rows_of(_output(command, cwd=_NODE))


def _program(name: str) -> str:
    try:
        return find_program(name)
    except BenchError as error:
        raise MissingClientError(str(error)) from error


def _output(command: list[str], cwd: Path | None = None) -> bytes:
    if shutil.which(command[0]) is None:
        raise MissingClientError(f"there is no {command[0]} here")
    ended = subprocess.run(command, capture_output=True, check=False, timeout=60, cwd=cwd)
    if ended.returncode != 0:
        raise BenchError(f"{command[0]} ended with status {ended.returncode}: {ended.stderr.decode()[-300:]}")
    return ended.stdout
