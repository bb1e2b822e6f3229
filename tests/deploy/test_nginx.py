"""deploy/nginx before a real server: calls, tokens and large answers pass, plain text does not."""

import subprocess
from pathlib import Path

import grpc
import pytest

from ghostless.client import Client, DeniedError
from loadtest.programs import find_program
from loadtest.server_process import BenchError, free_port
from serving.engines.batcher import BatchLimits
from tests.support.certificates import make_certificates
from tests.support.grpc_calls import stub_on
from tests.support.identities import IdentitiesWriter
from tests.support.running import FakeEngine, predict_request, serving

CONFIG = Path(__file__).parents[2] / "deploy" / "nginx" / "ghostless.conf"


def test_nginx_ends_tls_before_a_server(tmp_path: Path) -> None:
    try:
        program = find_program("nginx")
    except BenchError as error:
        pytest.skip(str(error))
    certificates = make_certificates(tmp_path / "certs")
    identities = IdentitiesWriter(tmp_path / "identities.toml")
    token = identities.add("ranker", 'calls = ["predict", "read"]')
    port = free_port()
    with serving(FakeEngine(BatchLimits(1, 512, 20_000)), identities=identities.path) as running:
        text = CONFIG.read_text().replace("127.0.0.1:8500", running.address).replace("8443", f"127.0.0.1:{port}")
        # What a root's nginx has in /var and /run lies in the test's folder.
        paths = [
            f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ]
        text = text.replace("http {", "\n".join(["http {", "access_log off;", *paths]))
        (tmp_path / "nginx.conf").write_text(f"daemon off;\nmaster_process off;\npid {tmp_path}/pid;\n{text}")
        command = [program, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as nginx:
            try:
                with (
                    Client(f"localhost:{port}", tls=certificates.tls(), token=token, timeout_s=5.0) as client,
                    Client(f"localhost:{port}", tls=certificates.tls(), timeout_s=5.0) as anonymous,
                    certificates.channel(port) as channel,
                    grpc.insecure_channel(f"localhost:{port}") as plain,
                ):
                    grpc.channel_ready_future(channel).result(timeout=10)
                    assert [model.name for model in client.list_models().models] == ["demo"]
                    metadata = (("authorization", f"Bearer {token}"),)
                    assert stub_on(channel).Predict(predict_request(9000), timeout=10, metadata=metadata).rows == 9000
                    with pytest.raises(DeniedError):
                        anonymous.list_models()
                    with pytest.raises(grpc.RpcError):
                        stub_on(plain).Predict(predict_request(), timeout=2, metadata=metadata)
            finally:
                nginx.terminate()
