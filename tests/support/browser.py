"""A real headless Chromium, driven over a pipe by the DevTools protocol."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT
from tests.support.waiting import eventually

# The protocol's pipes are the descriptors 3 (to the browser) and 4 (from it).
_START = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
_FREE_DESCRIPTOR = 10


def find_browser() -> str:
    local = ROOT / ".tools" / "bin" / "chromium-headless-shell"
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium") or (local.exists() and local.resolve())
    if not found:
        pytest.skip("there is no Chromium here; `make tools` fetches one")
    return str(found)


class Page:
    """One tab. `errors`: what its console and its scripts complained about. `requests`: every address it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._came = threading.Condition()
        self._session = ""
        threading.Thread(target=self._read, daemon=True).start()
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Security.setIgnoreCertificateErrors", {"ignore": True})

    def send(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, 30), f"the browser does not answer {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = self.send("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Go to a page of the console and wait until it is shown."""
        self.send("Page.navigate", {"url": url})
        self.wait("document.querySelector('.page')?.dataset.ready === 'yes'")

    def wait(self, script: str) -> None:
        eventually(lambda: self.run(f"Boolean({script})"), script)

    def look(self, width: int, height: int, theme: str = "light", is_phone: bool = False) -> None:
        """Set the size and the theme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.send("Emulation.setDeviceMetricsOverride", size)
        self.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})

    def picture(self, file: Path, whole: bool = True) -> None:
        shot = self.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        file.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> None:
        waiting = b""
        while data := os.read(self._from, 1 << 16):
            *whole, waiting = (waiting + data).split(b"\0")
            for text in whole:
                self._take(json.loads(text))

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
        if "id" in message:
            with self._came:
                self._answers[message["id"]] = message
                self._came.notify_all()


@contextmanager
def browsing() -> Iterator[Page]:
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        # Copies that the descriptors 3 and 4 can't be.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, _FREE_DESCRIPTOR) for end in (to_read, from_write)]
        command = [sys.executable, "-c", _START, *map(str, ends), find_browser(), *flags]
        process = subprocess.Popen(command, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (to_read, from_write, *ends):
            os.close(end)
        try:
            yield Page(to_write, from_read)
        finally:
            process.terminate()
            process.wait(10)
            os.close(to_write)
