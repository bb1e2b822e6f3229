"""Backbones that are not ours: the graph answers as torch does, or the export names the node that can't be served."""

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from export import publish
from export.errors import OptionError
from export.graph import Networks
from export.options import ExportOptions
from learning.checkpoint import Checkpoint
from learning.config import ModelConfig, TrainConfig
from learning.data.table import Table
from learning.errors import RankerError
from learning.training import Trainer
from serving.engines.embedded import load_model
from tests.support import torch_models as models

pytestmark = pytest.mark.usefixtures("few_rows")
SERVED = ExportOptions()


def trained(videos: Table, name: str = "TwoTower", **changes: Any) -> Checkpoint:
    own = {"own": f"tests.support.rankers:{name}", "bins": 12, "head": "cr", **changes}
    return Trainer(videos, "videos", ModelConfig(**own), TrainConfig(steps=30, batch_rows=256)).run()


@pytest.mark.parametrize(
    "changes",
    [
        {"head": "cr", "own_options": '{"normalised": true}'},
        {"head": "qr", "levels": 20, "groups": 5},
    ],
)
def test_it_is_verified_and_loaded_like_any_model(videos: Table, tmp_path: Path, changes: dict[str, Any]) -> None:
    checkpoint = trained(videos, **changes)
    version, report = publish.export_model(Networks((checkpoint,)), "own", tmp_path, SERVED)
    assert report.ok
    assert report.largest_error is not None
    assert 0.0 < report.largest_error <= 1e-4
    file = tmp_path / "own" / str(version) / "model.onnx"
    loaded = load_model(file, "own", version, (1, 3))
    assert [feature.name for feature in loaded.metadata.features] == ["user_id", "video_id", "duration_ms"]
    # Dropout is gone and BatchNorm is folded or in evaluation mode.
    assert not {"Dropout", "If", "Loop"} & {node.op_type for node in onnx.load(file).graph.node}


def test_an_ensemble_of_them_is_one_graph(videos: Table, tmp_path: Path) -> None:
    members = [trained(videos, method="deterministic") for _ in range(2)]
    with torch.no_grad():
        next(members[1].model.parameters()).mul_(1.5)
    _, report = publish.export_model(Networks.ensemble(members), "own", tmp_path, SERVED)
    assert report.ok


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SoftmaxOverRows", r"depends on the other rows.*\(Softmax\) softmax over rows"),
        ("SortedRows", r"depends on the other rows.*\(TopK\) sorts rows"),
        ("TrainingNorm", r"depends on the other rows|training mode"),
        ("Noisy", r"draws random numbers"),
        ("NoNumber", r"not finite for extreme values, first at node .*\(Log\)"),
        ("FixedRows", r"batch dimension is fixed"),
        ("DataShaped", r"\(NonZero\) has an output whose shape depends on the data"),
        ("Branching", r"a shape or a branch depends on the data"),
    ],
)
def test_what_can_not_be_served_is_refused_with_the_node(
    videos: Table, tmp_path: Path, name: str, message: str
) -> None:
    checkpoint = models.shaken_ranker(videos, f"tests.support.rankers:{name}")
    with pytest.raises(RankerError) as refused:
        publish.export_model(Networks((checkpoint,)), "own", tmp_path, SERVED)
    assert str(refused.value).startswith(f"tests.support.rankers:{name}: ")
    assert re.search(message, str(refused.value), re.DOTALL), refused.value
    assert not (tmp_path / "own").exists()


def test_half_precision_and_dropout_need_a_built_in_backbone(videos: Table, tmp_path: Path) -> None:
    checkpoint = models.shaken_ranker(videos, "tests.support.rankers:TwoTower")
    with pytest.raises(OptionError, match="needs a built-in backbone"):
        publish.export_model(Networks((checkpoint,)), "own", tmp_path, ExportOptions(precision="fp16"))
    with pytest.raises(OptionError, match="needs a built-in backbone"):
        Networks.mc_dropout(checkpoint, 4)
