"""The processes of an attack: what the attacker sees of a server, and a sink that takes everything."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ghostless.contract import http2_frames as f
from loadtest.hostile.attacker import Answers, Assault, attack_for
from loadtest.hostile.attacks import Target
from loadtest.hostile.table import ATTACKS
from serving.http2.headers import ANSWER_HEADERS, trailers
from tests.support.echoing import ECHO, echoing

TARGET = Target(ECHO, b"x")


@contextmanager
def _process(name: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", f"loadtest.hostile.{name}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


def test_what_an_attacker_sees_of_answers() -> None:
    ended: Counter[str] = Counter()
    answers = Answers(ended)
    wire = f.frame(f.HEADERS, f.END_HEADERS, 1, ANSWER_HEADERS + trailers(12, "no method"))
    wire += f.reset(3, 7) + f.reset(5, f.NO_ERROR) + f.go_away(5, 11, "why")
    for byte in wire:
        answers.take(bytes((byte,)))
    assert ended == {"status 12": 1, "reset 7": 1}
    assert answers.last_words == "goaway 11"
    answers = Answers(ended)
    answers.take(b"HTTP/1.1 505 No\r\n\r\n")
    assert answers.last_words == "http 505"


def test_a_rate_is_kept_and_an_attacker_that_is_closed_comes_back() -> None:
    with echoing(max_streams=1000) as server:
        until = time.monotonic() + 0.5
        assault = Assault(ATTACKS["PING"], TARGET, ("127.0.0.1", server.port), rate=100_000)
        report = attack_for(assault, 2, lambda: time.monotonic() < until)
        assert 50_000 < report.sent_bytes < 150_000
        assert report.connections >= 4
        assert report.ended["goaway 11"] >= 2


def test_processes_of_an_attacker_and_a_sink() -> None:
    with _process("sink") as sink, _process("attacker") as attacker:
        assert sink.stdout is not None
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        order = {"attack": "SETTINGS", "path": ECHO, "message": "", "rate": 0.0, "source": "127.0.0.2"}
        order |= {"host": "127.0.0.1", "port": int(sink.stdout.readline()), "connections": 2}
        attacker.stdin.write(json.dumps(order) + "\n")
        attacker.stdin.flush()
        attacker.stdout.readline()
        time.sleep(0.2)  # for that long it sends
        attacker.stdin.write("stop\n")
        attacker.stdin.flush()
        report = json.loads(attacker.stdout.readline())
        assert report["sent_bytes"] > 100_000
        assert report["connections"] == 2
        assert report["ended"] == {}, "a sink closes nobody"
