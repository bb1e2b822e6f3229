"""Small ensembles in a repository: five members by name, and the same five fused into one graph."""

from pathlib import Path

from export import publish
from export.graph import Networks
from export.options import ExportOptions
from ghostless.heads.config import HeadName
from learning.data.video import VIDEO_SCHEMA
from tests.support.torch_models import config, random_table, shaken

MEMBERS = tuple(f"member-{index}" for index in range(5))
FUSED = "fused"


def export_ensemble(head: HeadName, members: Path, fused: Path) -> None:
    """Export an ensemble. Members share their rows, and therefore their knots, but have different weights."""
    table = random_table(VIDEO_SCHEMA)
    networks = [
        shaken(VIDEO_SCHEMA, config(head=head, method="deterministic"), seed, table) for seed in range(len(MEMBERS))
    ]
    for name, network in zip(MEMBERS, networks, strict=True):
        publish.export_model(Networks.ensemble([network]), name, members, ExportOptions())
    publish.export_model(Networks.ensemble(networks), FUSED, fused, ExportOptions())
