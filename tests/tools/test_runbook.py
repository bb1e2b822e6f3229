"""The console's runbook is that of the documentation."""

import json

import yaml

from tests.support.processes import ROOT
from tools.runbook import TARGET, runbook


def test_the_consoles_runbook_is_that_of_the_docs() -> None:
    assert TARGET.read_text() == runbook(), "run `python tools/runbook.py`"
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules" / "alerts.yml").read_text())
    alerts = {rule["annotations"]["runbook"].partition("#")[2] for group in rules["groups"] for rule in group["rules"]}
    assert {name.lower() for name in json.loads(runbook())} >= alerts
