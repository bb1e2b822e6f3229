"""The report opened in a real browser without a network, in both themes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from loadtest.report.cost import Prices
from loadtest.report.files import PAGE, read_report, write_report
from tests.support.comparisons import example

CHARTS = ("throughput", "latency", "fleet", "uncertainty")
# Run inside of the page once it is laid out: what the browser really drew, and what it tried to fetch.
_PROBE = """<script>addEventListener("load", () => {
  const drawn = Object.fromEntries([...document.querySelectorAll("figure")].map(figure => {
    const shapes = [...figure.querySelectorAll("svg path, svg text")].filter(shape => {
      const box = shape.getBoundingClientRect();
      return box.width + box.height > 0;
    });
    const box = figure.querySelector("svg").getBoundingClientRect();
    const ink = getComputedStyle(figure.querySelector("svg text")).fill;
    return [figure.id, {width: box.width, height: box.height, shapes: shapes.length, ink: ink}];
  }));
  const fetched = performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith("data:"));
  const paper = getComputedStyle(document.body).backgroundColor;
  const wide = document.documentElement.scrollWidth > innerWidth;
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify({drawn, fetched, paper, wide});
  document.body.append(probe);
});</script></body>"""


def find_browser() -> str:
    local = Path(".tools/bin/chromium-headless-shell")
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium") or (local.exists() and local.resolve())
    if not found:
        pytest.skip("there is no Chromium here; `make tools` fetches one")
    return str(found)


def browse(page: Path, *options: str) -> tuple[str, str]:
    """The page's DOM after its scripts ran, and the browser's log. Every name and address but the file is refused."""
    command = [find_browser(), "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1200,3000"]
    command += ["--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={page.parent}/profile", *options, "--dump-dom", page.resolve().as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout, ended.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(example(), Prices(), folder)
    return folder


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_draws_every_chart_without_a_network(folder: Path, theme: str) -> None:
    probed = folder / "probed.html"
    probed.write_text((folder / PAGE).read_text().replace("</body>", _PROBE))
    options = ["--blink-settings=preferredColorScheme=0"] if theme == "dark" else []
    dom, log = browse(probed, *options)
    assert "CONSOLE" not in log, log
    probe = re.search(r'<pre id="probe">(.*?)</pre>', dom)
    assert probe is not None, "the page's script did not run"
    seen = json.loads(probe[1])
    assert seen["fetched"] == []
    assert not seen["wide"]
    assert set(seen["drawn"]) == set(CHARTS)
    light = seen["paper"] == "rgb(255, 255, 255)"
    assert light == (theme == "light")
    for name, chart in seen["drawn"].items():
        assert chart["width"] > 900, name
        assert chart["height"] > 200, name
        assert chart["shapes"] > 50, name
        assert chart["ink"] == ("rgb(34, 34, 34)" if light else "rgb(230, 232, 235)"), name


def test_nothing_in_the_page_points_outside(folder: Path) -> None:
    page = (folder / PAGE).read_text()
    pointers = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')>\s]+)', page)
    assert pointers
    assert all(pointer.startswith(("#", "data:")) for pointer in pointers), pointers


def test_it_says_what_was_measured(folder: Path) -> None:
    page = (folder / PAGE).read_text()
    text = re.sub(r"<[^>]+>", " ", page)
    assert "4.0x" in text  # 900 over 225
    assert "18.0x" in text  # 900 over 50
    assert "a processor &amp; more" in page
    assert "--price-per-core-hour &#x27;&lt;1&gt;&#x27;" in page


def test_pictures_and_data_lie_beside_it(folder: Path) -> None:
    for name in CHARTS:
        assert (folder / f"load_{name}.png").read_bytes().startswith(b"\x89PNG")
    assert read_report(folder) == example()
