"""The Grafana dashboard's queries, with values for its variables."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Values of the variables when "All" is selected.
EVERYTHING = {"job": ".*", "model": ".*", "version": ".*"}


@dataclass(frozen=True)
class PanelQuery:
    panel: str
    expression: str


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """All panels with data, including those within rows."""
    content = json.loads(dashboard.read_text())
    found = [panel for each in content["panels"] for panel in (each, *each.get("panels", ()))]
    return [panel for panel in found if panel["type"] != "row"]


def variables(dashboard: Path) -> set[str]:
    return {each["name"] for each in json.loads(dashboard.read_text())["templating"]["list"]}


def queries(dashboard: Path, window: str, values: Mapping[str, str] = EVERYTHING) -> Iterator[PanelQuery]:
    """Each panel's queries; `window` replaces $__rate_interval and $__range."""
    replaced = {**values, "__rate_interval": window, "__range": window}
    for panel in panels(dashboard):
        for target in panel["targets"]:
            expression = re.sub(r"\$(\w+)", lambda found: replaced[found[1]], target["expr"])
            yield PanelQuery(panel["title"], expression)
