"""The texts to paste work when they are pasted."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.browser import Page, browsing
from tests.support.http_calls import HttpClient
from tests.support.processes import ROOT, ServeProcess


def shown(page: Page, name: str) -> str:
    page.run(f"[...document.querySelectorAll('.tab')].find((each) => each.textContent === {name!r}).click()")
    text: str = page.run("document.querySelector('pre').textContent")
    return text


def test_curl_and_python_answer_when_they_are_pasted(open_server: ServeProcess) -> None:
    curl = shutil.which("curl")
    with HttpClient(open_server) as place, browsing() as page:
        page.open(f"http://{place.host}:{place.port}/#/try")
        page.run("document.getElementById('predict').click()")
        page.wait("document.querySelector('pre')")
        texts = {name: shown(page, name) for name in ("curl", "Python", "gRPC")}
        assert page.errors == []
    python = subprocess.run(
        [sys.executable, "-c", texts["Python"]], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert python.returncode == 0, python.stderr
    assert python.stdout.startswith("[")
    typed = json.loads(texts["gRPC"].split("'")[1])
    assert typed["context"]["user_id"] == {"int64s": {"values": [1]}}
    assert typed["candidates"]["duration"] == {"floats": {"values": [10, 20, 30]}}
    if curl is None:
        pytest.skip("there is no curl here")
    ended = subprocess.run(["sh", "-c", texts["curl"]], capture_output=True, text=True, timeout=60)
    assert json.loads(ended.stdout)["rows"] == 3
