"""Hostile requests: scripts, forged requests, headers, hosts and paths. Every case is refused or made harmless."""

import json
import socket
import ssl
from typing import Any

import pytest

from serving.console.pages import assets
from serving.console.sessions import COOKIE
from tests.serving.console.conftest import Guarded
from tests.support.http_calls import Answer, HttpClient
from tests.support.processes import ServeProcess

SCRIPT = "<script>alert(1)</script>"
PROMOTE = "/console/api/models/demo/promote"


def log_in(client: HttpClient, token: str) -> tuple[str, str]:
    """The cookie and the CSRF token."""
    answer = client.post("/console/api/login", {"token": token})
    assert answer.status == 200, answer.body
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=28800"):
        assert word in cookie
    return cookie.partition(";")[0], answer.json["csrf"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        # Path traversal.
        ("GET", "/console/../settings.py", 404),
        ("GET", "/console/..%2fsettings.py", 404),
        ("GET", "/console/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/console/..%5c..%5cetc%5cpasswd", 404),
        ("GET", "/console//etc/passwd", 404),
        ("GET", "/console/%00index.html", 400),
        ("GET", "/console/runbook.json", 404),
        ("GET", "/console/%ff%fe", 400),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "http://other.example/etc/passwd", 421),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/models/demo/versions/..%2f1", 404),
        ("GET", "/console/api/models/..%2f..%2ftmp/versions/1", 404),
        ("POST", "/console/api/models/..%2f..%2ftmp/promote", 403),
        # Scripts in names: answered as JSON that no browser runs.
        ("GET", f"/v1/models/{SCRIPT.replace('/', '%2f')}", 404),
        ("GET", f"/{SCRIPT.replace('/', '%2f')}", 404),
        ("GET", f"/console/api/live?model={SCRIPT}", 200),
        ("GET", "/console/api/live?version='%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E", 200),
        # Methods that nothing answers.
        ("PUT", "/v1/predict", 405),
        ("DELETE", "/v1/models/demo", 405),
        ("OPTIONS", "/v1/predict", 405),
        ("TRACE", "/v1/models", 405),
        ("INVENTED", "/v1/models", 405),
        ("GET", "/v1/predict", 405),
        ("GET", PROMOTE, 405),
        ("GET", "/console/api/logout", 405),
    ],
)
def test_paths_and_methods(client: HttpClient, method: str, path: str, status: int) -> None:
    answer = client.call(method, path, b'{"version": 1}' if method == "POST" else None)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert "access-control-allow-origin" not in answer.headers
    check_headers(answer)
    assert b"root:" not in answer.body


def check_headers(answer: Answer) -> None:
    policy = answer.headers["content-security-policy"]
    for word in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert word in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_every_file_has_the_headers_and_no_inline_script(client: HttpClient) -> None:
    for path in ("/", *(f"/console/{name}" for name in assets())):
        answer = client.get(path)
        assert answer.status == 200
        check_headers(answer)
        text = answer.body.decode()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=",
        ):
            assert word not in text, f"{path} has {word}"
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), path
        assert "https://" not in text, path
        assert " on" not in "".join(part.partition(">")[0] for part in text.split("<")[1:] if path == "/")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:9500"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_encoding": "gzip"}, 415),
        ({"transfer_encoding": "chunked"}, 411),
        ({"authorization": "Bearer \x7f"}, 400),
        ({"ghostless_timeout_ms": "-1"}, 400),
    ],
)
def test_headers_of_a_call(client: HttpClient, headers: dict[str, str], status: int) -> None:
    answer = client.post("/v1/predict", {}, **headers)
    assert answer.status == status
    check_headers(answer)


@pytest.mark.parametrize(
    "head",
    [
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}",
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\n{}",
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET /" + "a" * 9000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\n" + "x: y\r\n" * 200 + "\r\n",
        "GET /v1/models HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /v1/models/a\x0bb HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_malformed_requests_are_refused_and_end_the_connection(open_server: ServeProcess, head: str) -> None:
    with HttpClient(open_server) as place, socket.create_connection((place.host, place.port), 20) as connection:
        connection.sendall(head.encode("latin-1"))
        received = b""
        while data := connection.recv(65536):
            received += data
    status = int(received.split()[1])
    assert 400 <= status < 510, received[:100]
    assert status != 500


def test_nothing_can_be_changed_without_identities(client: HttpClient) -> None:
    answer = client.post(PROMOTE, {"version": 1})
    assert (answer.status, answer.json["code"]) == (403, "PERMISSION_DENIED")
    assert client.post("/console/api/login", {"token": "x"}).status == 400
    assert client.get("/console/api/session").json["has_identities"] is False


def test_a_session_needs_its_csrf_token_and_ends_with_log_out(guarded: Guarded) -> None:
    with guarded.client() as client:
        cookie, csrf = log_in(client, guarded.tokens["admin"])
        assert client.get("/console/api/session", cookie=cookie).json["identity"] == "admin"
        assert client.get("/v1/models/demo", cookie=cookie).status == 200
        for wrong in (
            {},
            {"x_csrf_token": ""},
            {"x_csrf_token": csrf[:-1]},
            {"x_csrf_token": csrf, "origin": "https://evil.example"},
        ):
            for path in (PROMOTE, "/v1/predict", "/console/api/logout"):
                assert client.post(path, {"version": 1}, cookie=cookie, **wrong).status == 403
        assert client.post("/console/api/logout", {}, cookie=cookie, x_csrf_token=csrf).status == 200
        assert client.get("/console/api/session", cookie=cookie).json["identity"] == ""
        assert client.post(PROMOTE, {"version": 1}, cookie=cookie, x_csrf_token=csrf).status == 401


@pytest.mark.parametrize("token", ["", " ", "glt_00000000_x", SCRIPT, "x" * 100_000, 7, None, ["a"]])
def test_a_wrong_token_gets_no_session(guarded: Guarded, token: Any) -> None:
    with guarded.client() as client:
        answer = client.post("/console/api/login", {"token": token})
    assert answer.status in (400, 401)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("cookie", [f"{COOKIE}=", f"{COOKIE}=guess", "=;;=", f'{COOKIE}="a\\073b"', "a" * 4000])
def test_a_made_up_cookie_is_nobody(guarded: Guarded, cookie: str) -> None:
    with guarded.client() as client:
        assert client.get("/v1/models", cookie=cookie).status == 401


@pytest.mark.parametrize(("identity", "status"), [("", 401), ("reader", 403), ("blind", 403), ("limited", 403)])
def test_only_admins_of_the_model_change_its_version(guarded: Guarded, identity: str, status: int) -> None:
    with guarded.client(identity) as client:
        assert client.post(PROMOTE, {"version": 1}).status == status
        assert client.post("/console/api/models/demo/rollback", {}).status == status


def test_an_admin_promotes_and_rolls_back_and_it_is_audited(guarded: Guarded) -> None:
    with guarded.client("admin") as client:
        for version in (99, "2", True, None, 1.5):
            assert client.post(PROMOTE, {"version": version}).status == 400
        assert client.post(PROMOTE, {"version": 1}).json["version"] == 1
        assert json.loads((guarded.root / "demo" / "in_service.json").read_text())["version"] == 1
        assert client.post("/console/api/models/demo/rollback", {}).json["version"] == 2
        assert client.post("/console/api/models/nobody/promote", {"version": 1}).status == 400
    lines = [json.loads(line) for line in guarded.audit_log.read_text().splitlines()]
    done = [(line["identity"], line["call"], line["version"]) for line in lines if line["result"] == "done"]
    assert done == [("admin", "promote", 1), ("admin", "rollback", 2)]
    assert all(line["from"] == "127.0.0.1" for line in lines)


def test_the_port_needs_a_client_certificate_where_grpc_does(guarded: Guarded) -> None:
    context = guarded.certificates.context("", ("http/1.1",))
    with HttpClient(guarded.server, context=context) as client, pytest.raises((ssl.SSLError, ConnectionError)):
        client.get("/v1/models")


def test_names_of_the_identities_file_never_reach_strangers(guarded: Guarded) -> None:
    with guarded.client() as client:
        for path in ("/console/api/session", "/console/api/models", "/console/api/live", "/console/api/alarms"):
            body = client.get(path).body
            assert b"limited" not in body
            assert b"sha256" not in body
