"""Calls with a wrong, missing, expired, revoked or unpermitted identity: each must end with the right code."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2 as oip

from benchmarks.gates.gates_bench import GatesBench, identity
from ghostless.client.calls import get_model_call, list_models_call, predict_call
from ghostless.client.request import PredictArguments
from ghostless.v1 import prediction_pb2 as pb
from loadtest.server_process import ServerProcess
from serving.security.development_ca import DevelopmentCa
from serving.security.tokens import hash_token, new_token

_GHOSTLESS, _OIP = "/ghostless.v1.PredictionService", "/inference.GRPCInferenceService"
_UNAUTHENTICATED, _DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
_EXHAUSTED, _UNREACHABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
_REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
_TIMEOUT_S = 10.0

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RefusalCase:
    """A call that must end with `code`. `certificate`: name of the client's certificate in the folder, empty for
    none."""

    name: str
    method: str
    message: bytes
    code: grpc.StatusCode
    metadata: Metadata = ()
    certificate: str = ""


@dataclass(frozen=True)
class Refusals:
    """The identities that the cases need, and their requests."""

    bench: GatesBench
    tokens: dict[str, str] = field(default_factory=dict)

    def write(self) -> Path:
        text = ""
        for name, lines, expires in (
            ("everything", ('calls = ["predict", "outcomes", "read", "admin"]',), ""),
            ("predicts", ('calls = ["predict"]',), ""),
            ("reads", ('calls = ["read"]',), ""),
            ("reports", ('calls = ["outcomes"]',), ""),
            ("elsewhere", ('calls = ["predict", "read"]', 'models = ["elsewhere", "else-*"]'), ""),
            ("nowhere", ('calls = ["predict", "read"]', "models = []"), ""),
            ("late", ('calls = ["predict"]',), "2020-01-01T00:00:00Z"),
            ("dated", ('calls = ["predict"]',), "2020-01-01"),
            ("narrow", ('calls = ["predict"]', "concurrent_rows = 1"), ""),
            ("slow", ('calls = ["predict"]', "rows_per_s = 0.001"), ""),
            ("machine", ('calls = ["read"]', 'certificates = ["DNS:ranker", "DNS:revoked", "DNS:late"]'), ""),
        ):
            part, self.tokens[name] = identity(name, *lines, expires=expires)
            text += part
        return self.bench.write_identities("refusals.toml", text)

    def make_certificates(self) -> None:
        bench = self.bench
        bench.authority.issue_client("stranger")
        bench.authority.issue_client("revoked")
        bench.authority.issue_server("imposter", ["localhost"])
        bench.authority.revoke(["revoked"])
        past = DevelopmentCa(bench.folder, now=datetime.now(UTC) - timedelta(days=2))
        past.issue_client("late", days=1)
        others = DevelopmentCa(bench.folder / "others")
        for path in others.issue_client("ranker"):
            path.rename(bench.folder / path.name.replace("ranker", "foreign"))

    def arguments(self, rows: int = 2) -> PredictArguments:
        return self.bench.model.rows(rows, seed=0).arguments(self.bench.model.name)

    def predict(self, model: str | None = None, rows: int = 2) -> bytes:
        arguments = self.arguments(rows)
        if model is not None:
            arguments["model"] = model
        return predict_call(arguments).request

    def token_cases(self) -> Iterator[RefusalCase]:
        """Calls with invalid credentials."""
        good = self.tokens["everything"]
        unknown, *_ = new_token()
        bearers = {
            "an unknown token": unknown,
            "a known id with another secret": good[:13] + unknown[13:],
            "a token without its last character": good[:-1],
            "a token with one character more": good + "A",
            "a token in upper case": good.upper(),
            "the hash that is stored": hash_token(good).hex(),
            "a token's id": good[4:12],
            "a secret without its id": good[13:],
            "two tokens": f"{good},{good}",
            "a token in quotes": f'"{good}"',
            "a token behind another scheme's name": f"Bearer {good}",
            "an expired token": self.tokens["late"],
            "a token that expired by date": self.tokens["dated"],
            "an empty token": "",
        }
        for name, token in bearers.items():
            yield self._case(name, (("authorization", f"Bearer {token}"),))
        for name, value in {
            "a token without a scheme": good,
            "a token as a password": f"Basic {good}",
            "an empty authorization": "",
        }.items():
            yield self._case(name, (("authorization", value),))
        yield self._case("a token in another field", (("x-api-key", good),))
        yield self._case("a wrong token beside a good certificate", (("authorization", "Bearer wrong"),), "ranker")
        yield self._case("a certificate of no identity", (), "stranger")

    def _case(self, name: str, metadata: Metadata, certificate: str = "") -> RefusalCase:
        return RefusalCase(name, f"{_GHOSTLESS}/Predict", self.predict(), _UNAUTHENTICATED, metadata, certificate)

    def anonymous_cases(self) -> Iterator[RefusalCase]:
        """Calls without any credentials."""
        name = self.bench.model.name
        for method, message in {
            f"{_GHOSTLESS}/Predict": self.predict(),
            f"{_GHOSTLESS}/ListModels": list_models_call().request,
            f"{_GHOSTLESS}/GetModel": get_model_call("", 0).request,
            f"{_GHOSTLESS}/RecordOutcomes": pb.RecordOutcomesRequest().SerializeToString(),
            f"{_OIP}/ModelInfer": oip.ModelInferRequest(model_name=name).SerializeToString(),
            f"{_OIP}/ModelMetadata": oip.ModelMetadataRequest(name=name).SerializeToString(),
            f"{_OIP}/RepositoryIndex": b"",
            f"{_OIP}/RepositoryModelLoad": oip.RepositoryModelLoadRequest(model_name=name).SerializeToString(),
            _REFLECTION: b"",
            "/no.such/Method": b"",
        }.items():
            yield RefusalCase(f"no credentials: {method}", method, message, _UNAUTHENTICATED)

    def permission_cases(self) -> Iterator[RefusalCase]:
        """Calls of known identities that lack the permission."""
        name = self.bench.model.name
        infer = oip.ModelInferRequest(model_name=name).SerializeToString()
        load = oip.RepositoryModelLoadRequest(model_name=name).SerializeToString()
        for who, method, message in (
            ("reads", f"{_GHOSTLESS}/Predict", self.predict()),
            ("reads", f"{_OIP}/ModelInfer", infer),
            ("reads", f"{_GHOSTLESS}/RecordOutcomes", b""),
            ("reads", f"{_OIP}/RepositoryModelLoad", load),
            ("reads", "/no.such/Method", b""),
            ("predicts", f"{_GHOSTLESS}/ListModels", b""),
            ("predicts", f"{_GHOSTLESS}/RecordOutcomes", b""),
            ("predicts", _REFLECTION, b""),
            ("reports", f"{_GHOSTLESS}/Predict", self.predict()),
            ("elsewhere", f"{_GHOSTLESS}/Predict", self.predict()),
            ("elsewhere", f"{_GHOSTLESS}/Predict", self.predict("")),
            ("elsewhere", f"{_GHOSTLESS}/Predict", self.predict("no such model")),
            ("elsewhere", f"{_GHOSTLESS}/GetModel", get_model_call(name, 0).request),
            ("elsewhere", f"{_OIP}/ModelInfer", infer),
            ("elsewhere", f"{_OIP}/ModelMetadata", oip.ModelMetadataRequest(name=name).SerializeToString()),
            ("elsewhere", f"{_OIP}/ModelConfig", oip.ModelConfigRequest(name=name).SerializeToString()),
            ("elsewhere", f"{_OIP}/ModelReady", oip.ModelReadyRequest(name=name).SerializeToString()),
            ("nowhere", f"{_GHOSTLESS}/Predict", self.predict()),
        ):
            yield RefusalCase(f"{who}: {method}", method, message, _DENIED, _bearer(self.tokens[who]))
        predict = f"{_GHOSTLESS}/Predict"
        yield RefusalCase("a certificate whose identity may not", predict, self.predict(), _DENIED, (), "ranker")
        narrow = _bearer(self.tokens["narrow"])
        yield RefusalCase("more rows than at once", predict, self.predict(rows=2), _EXHAUSTED, narrow)
        yield RefusalCase("more rows than its rate", predict, self.predict(), _EXHAUSTED, _bearer(self.tokens["slow"]))

    def certificate_cases(self) -> Iterator[RefusalCase]:
        """Calls with certificates that TLS itself rejects."""
        for certificate in ("revoked", "late", "foreign", "imposter"):
            method = f"{_GHOSTLESS}/ListModels"
            yield RefusalCase(f"{certificate} certificate", method, b"", _UNREACHABLE, (), certificate)

    def cases(self) -> list[RefusalCase]:
        return [
            *self.token_cases(),
            *self.anonymous_cases(),
            *self.permission_cases(),
            *self.certificate_cases(),
        ]


def measure_refusals(bench: GatesBench) -> None:
    bench.say("calls with a wrong, missing, expired, revoked or unpermitted identity")
    wrong = [f"{case.name}: {code.name}, expected {case.code.name}" for case, code in run_refusals(bench)]
    for text in wrong:
        bench.say(f"  {text}")
    bench.figures.add("refusal cases tested", count_cases(bench), ">= 40")
    bench.figures.add("refusal cases with a wrong result", len(wrong), "== 0")


def count_cases(bench: GatesBench) -> int:
    refusals = Refusals(bench)
    refusals.write()
    return len(refusals.cases())


def run_refusals(bench: GatesBench) -> list[tuple[RefusalCase, grpc.StatusCode]]:
    """The cases that did not end as they should, and how they ended."""
    refusals = Refusals(bench)
    refusals.make_certificates()
    file = refusals.write()
    options = [*bench.mutual_options, "--identities", str(file)]
    with bench.server(*options, tls=bench.tls) as server, _channels(bench, server) as channel_of:
        # The same call must succeed with the right identity; otherwise the refusals would prove nothing.
        good = _bearer(refusals.tokens["everything"])
        allowed = RefusalCase("allowed", f"{_GHOSTLESS}/Predict", refusals.predict(), grpc.StatusCode.OK, good)
        spent = RefusalCase("rate", f"{_GHOSTLESS}/Predict", refusals.predict(), grpc.StatusCode.OK)
        slow = _bearer(refusals.tokens["slow"])
        for worker in range(8):  # for a moment, each worker has its own view of the rate
            _code(channel_of(f"slow {worker}"), RefusalCase("", spent.method, spent.message, spent.code, slow))
        ended = [(case, _code(channel_of(case.certificate), case)) for case in [allowed, *refusals.cases()]]
    return [(case, code) for case, code in ended if code is not case.code]


@contextmanager
def _channels(bench: GatesBench, server: ServerProcess) -> Iterator[Callable[[str], grpc.Channel]]:
    """A channel for each certificate, by its name; a name without a file gets a channel without a certificate."""
    opened: dict[str, grpc.Channel] = {}
    root = (bench.folder / "ca.pem").read_bytes()
    with ExitStack() as stack:

        def channel_of(name: str) -> grpc.Channel:
            if name not in opened:
                certificate, key = bench.folder / f"{name}.pem", bench.folder / f"{name}-key.pem"
                own = (key.read_bytes(), certificate.read_bytes()) if certificate.exists() else (None, None)
                credentials = grpc.ssl_channel_credentials(root, *own)
                # A separate connection, even if there is already one to the server.
                options = [("grpc.use_local_subchannel_pool", 1)]
                channel = grpc.secure_channel(server.address, credentials, options)
                opened[name] = stack.enter_context(channel)
            return opened[name]

        yield channel_of


def _code(channel: grpc.Channel, case: RefusalCase) -> grpc.StatusCode:
    method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(case.method)
    try:
        method(case.message, timeout=_TIMEOUT_S, metadata=case.metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)
