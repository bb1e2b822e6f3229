"""A real browser walks through the console of a real server: every page, both themes, desktop and phone."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from ghostless.contract import repository
from ghostless.v1 import prediction_pb2 as pb
from tests.support.browser import Page, browsing
from tests.support.grpc_calls import stub_on
from tests.support.http_calls import HttpClient
from tests.support.identities import IdentitiesWriter
from tests.support.onnx_models import Recipe, write_version
from tests.support.processes import ROOT, ServeProcess, served
from tests.support.running import predict_request
from tests.support.waiting import eventually

AXE = ROOT / "tests" / "support" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = ("models", "try", "live", "truth", "alarms", "api")
# Number of elements that a screen reader could not name.
_UNNAMED = """[...document.querySelectorAll('input, select, button, a, svg[role=img]')].filter(
  (each) => !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length)).length"""
# Texts that show that something was drawn which is none.
_STRAY = """[...document.querySelectorAll('body *')].flatMap((each) => [...each.childNodes]).filter(
  (each) => each.nodeType === 3 && /^(null|undefined|NaN|false|true)$|\\[object/.test(each.textContent.trim())).map(
  (each) => each.textContent)"""
_BOXES = """[...document.querySelectorAll('.density .area')].map(
  (each) => [each.getBoundingClientRect().width, each.getBoundingClientRect().height])"""
MAX_PAGE_BYTES = 1_500_000
# A name that would run as a script if a page took it for markup.
HOSTILE = "<img src=x onerror=document.title=1>"


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> IdentitiesWriter:
    writer = IdentitiesWriter(tmp_path_factory.mktemp("identities") / "identities.toml")
    writer.add("operator", 'calls = ["predict", "outcomes", "read", "admin"]')
    return writer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def server(root: Path, identities: IdentitiesWriter) -> Iterator[ServeProcess]:
    for version in (1, 2):
        write_version(root, version, Recipe(seed=version))
    write_version(root, 1, Recipe(), name=HOSTILE.replace("/", ""))
    flags = ("--identities", str(identities.path), "--poll-s", "0.1", "--default-model", "demo")
    with served(root, *flags) as server:
        yield server


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as page:
        yield page


@pytest.fixture(scope="module")
def home(server: ServeProcess) -> str:
    with HttpClient(server) as place:
        return f"http://{place.host}:{place.port}/"


@pytest.fixture(autouse=True)
def clean(page: Page, home: str) -> Iterator[None]:
    """Nothing on any page may fail, or ask another host."""
    page.errors.clear()
    page.requests.clear()
    yield
    # A call that is refused for want of a login is reported by the browser, and shown by the page.
    assert [each for each in page.errors if "401 (" not in each] == []
    assert [each for each in page.requests if not each.startswith((home, "data:"))] == []


def log_in(page: Page, home: str, token: str) -> None:
    page.open(f"{home}#/models")
    if page.run("document.getElementById('account').textContent").startswith("operator"):
        return
    page.run("document.querySelector('#account button').click()")
    page.run(f"document.getElementById('token').value = {token!r}")
    page.run("document.querySelector('dialog button[type=submit]').click()")
    page.wait("document.getElementById('account').textContent.startsWith('operator')")
    page.wait("document.querySelector('.page')?.dataset.ready === 'yes'")


def test_without_a_login_the_console_is_read_only(page: Page, home: str) -> None:
    page.look(1280, 900)
    page.open(f"{home}#/models")
    text = page.run("document.body.textContent")
    assert "version 2 in service" in text
    assert "need a login" in text
    assert page.run("[...document.querySelectorAll('main button')].length") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_shown_within_the_window(
    page: Page, home: str, identities: IdentitiesWriter, width: int, theme: str
) -> None:
    page.look(width, 900, theme, is_phone=width < 500)
    log_in(page, home, identities.tokens["operator"])
    for name in PAGES:
        page.open(f"{home}?{name}-{width}-{theme}#/{name}")
        assert not page.run("document.documentElement.scrollWidth > innerWidth"), name
        assert page.run("document.querySelectorAll('h1').length") == 1
        assert page.run(_STRAY) == [], name
        assert page.run(_UNNAMED) == 0, name
    dark = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 27)"
    assert dark == (theme == "dark")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(page: Page, home: str, identities: IdentitiesWriter, theme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not here; `make examples` fetches it")
    page.look(1280, 900, theme)
    log_in(page, home, identities.tokens["operator"])
    for name in PAGES:
        page.open(f"{home}?axe-{name}-{theme}#/{name}")
        if name == "try":
            page.run("document.getElementById('predict').click()")
            page.wait("document.querySelectorAll('.density').length === 3")
        page.run(AXE.read_text())
        found = page.run("axe.run().then((result) => result.violations)")
        serious = [
            (each["id"], each["help"], [node["html"][:200] for node in each["nodes"]])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], name


def test_a_prediction_through_the_form_is_drawn(page: Page, home: str, identities: IdentitiesWriter) -> None:
    page.look(1280, 900)
    log_in(page, home, identities.tokens["operator"])
    page.open(f"{home}?form#/try")
    page.run("document.querySelector('select').value = 'demo'")
    page.run("document.querySelector('select').dispatchEvent(new Event('change'))")
    page.run("document.getElementById('predict').click()")
    page.wait("document.querySelectorAll('.density').length === 3")
    boxes = page.run(_BOXES)
    assert all(width > 200 and height > 50 for width, height in boxes)
    assert page.run("document.querySelectorAll('.split rect.epistemic').length") == 3
    assert "Thompson" in page.run("document.body.textContent")
    assert "/v1/predict" in page.run("document.querySelector('pre').textContent")


def test_a_promoted_version_is_served(page: Page, home: str, identities: IdentitiesWriter) -> None:
    log_in(page, home, identities.tokens["operator"])
    page.open(f"{home}?promote#/models")
    page.run("[...document.querySelectorAll('button')].find(e => e.textContent === 'Promote').click()")
    page.wait("document.querySelector('dialog').open")
    page.run("document.querySelector('dialog .primary').click()")
    page.wait("document.body.textContent.includes('version 1 in service')")


def test_outcomes_move_the_coverage(page: Page, home: str, server: ServeProcess, identities: IdentitiesWriter) -> None:
    metadata = (("authorization", f"Bearer {identities.tokens['operator']}"),)
    log_in(page, home, identities.tokens["operator"])
    page.open(f"{home}?truth#/truth")
    assert "No outcomes yet" in page.run("document.querySelector('main').textContent")
    with grpc.insecure_channel(server.address) as channel:
        stub = stub_on(channel)
        for number in range(5):
            stub.Predict(predict_request(40, number, request_id=f"b{number}", model="demo"), metadata=metadata)
            outcomes = pb.RecordOutcomesRequest(request_ids=[f"b{number}"] * 40, rows=range(40), actuals=[1.0] * 40)
            assert stub.RecordOutcomes(outcomes, metadata=metadata).joined == 40

    def is_drawn() -> bool:
        page.open(f"{home}?{time.monotonic()}#/truth")
        return bool(page.run("document.querySelectorAll('.chart circle.dot').length > 1"))

    eventually(is_drawn, "the coverage")
    assert "200" in page.run("document.querySelector('.facts.big').textContent")
    assert page.run("document.querySelectorAll('rect.column').length") == 20


def test_an_alarm_is_shown_with_what_to_do(page: Page, home: str, root: Path, identities: IdentitiesWriter) -> None:
    log_in(page, home, identities.tokens["operator"])
    page.open(f"{home}?quiet#/alarms")
    assert "Nothing is wrong" in page.run("document.querySelector('main').textContent")
    before = repository.find(root, "demo").in_service
    (root / "demo" / "9").mkdir()
    (root / "demo" / "9" / "model.onnx").write_bytes(b"no model")
    repository.promote(root, "demo", 9)

    def is_shown() -> bool:
        page.open(f"{home}?{time.monotonic()}#/alarms")
        return "GhostlessVersionFailed" in page.run("document.querySelector('main').textContent")

    eventually(is_shown, "the alarm")
    text = page.run("document.querySelector('main').textContent")
    assert "demo version 9 can't be loaded" in text
    assert "ghostless models list" in text
    assert "[object" not in text
    assert "GhostlessWantedVersionNotServed" in text
    page.wait("!document.getElementById('alarm-count').hidden")
    repository.promote(root, "demo", before)
    shutil.rmtree(root / "demo" / "9")
    eventually(lambda: not is_shown(), "the end of the alarm")


def test_a_hostile_name_stays_text(page: Page, home: str, identities: IdentitiesWriter) -> None:
    log_in(page, home, identities.tokens["operator"])
    for name in ("models", "try", "live", "truth"):
        page.open(f"{home}?hostile-{name}#/{name}")
        assert page.run("document.querySelectorAll('main img').length") == 0
        assert page.run("document.title") != "1"
    page.open(f"{home}?hostile#/models")
    assert HOSTILE in page.run("document.querySelector('main').textContent")


def test_the_first_page_is_light_and_fast_under_load(
    page: Page, home: str, server: ServeProcess, identities: IdentitiesWriter
) -> None:
    metadata = (("authorization", f"Bearer {identities.tokens['operator']}"),)
    stop = threading.Event()
    sent: list[int] = []

    def load() -> None:
        with grpc.insecure_channel(server.address) as channel:
            while not stop.is_set():
                stub_on(channel).Predict(predict_request(20, model="demo"), metadata=metadata)
                sent.append(1)

    thread = threading.Thread(target=load)
    thread.start()
    try:

        def is_drawn() -> bool:
            page.open(f"{home}?{time.monotonic()}#/live")
            lines = page.run("document.querySelectorAll('.chart path.line').length")
            rate = page.run("document.querySelector('.legend b')?.textContent")
            return bool(lines > 2 and rate != "0")

        eventually(is_drawn, "the charts")
        size = page.run("performance.getEntriesByType('resource').reduce((sum, each) => sum + each.encodedBodySize, 0)")
    finally:
        stop.set()
        thread.join()
    assert 10_000 < size < MAX_PAGE_BYTES
    assert sent
