"""The documentation site names every page and every public name; `make docs` builds it."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def pages(entry: object) -> Iterator[str]:
    """The files of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from pages(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from pages(value)


def test_the_navigation_has_every_page_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(pages(navigation)) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", ["client", "heads"])
def test_the_reference_has_every_public_name(name: str) -> None:
    text = (DOCS / "api" / f"{name}.md").read_text()
    named = set(re.findall(rf"^::: ghostless\.{name}\.(\w+)$", text, re.MULTILINE))
    # Errors are documented with their module, scoring rules are listed; `Scoring` is the union of these.
    listed = {each for members in re.findall(r"members: \[(.*?)\]", text) for each in members.split(", ")}
    errors = {each for each in vars(importlib.import_module("ghostless.client.errors")) if each.endswith("Error")}
    missing = set(importlib.import_module(f"ghostless.{name}").__all__) - named - listed - errors - {"Scoring"}
    assert not missing


def test_links_between_pages_have_targets() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
