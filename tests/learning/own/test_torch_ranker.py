"""A class by its import path becomes a backbone, or the error says what is wrong with it."""

import json
import sys
from pathlib import Path

import pytest
import torch

from ghostless.contract.errors import ConfigError
from ghostless.heads import FeatureInput
from learning.checkpoint import FILE, Checkpoint, load_file, save_atomically
from learning.data.table import Table
from learning.errors import CheckpointError
from learning.own import torch_ranker
from learning.own.model import TorchRankerModel
from learning.training import Trainer
from tests.support import rankers
from tests.support.command_line import Ghostless
from tests.support.training import brief_training, small_model

PATH = "tests.support.rankers:TwoTower"
FEATURES = (
    FeatureInput("user_id", "id", "context", 10),
    FeatureInput("video_id", "id", "candidate", 8),
    FeatureInput("duration_ms", "number", "candidate", 0),
)


def test_width_is_found_by_running_it() -> None:
    backbone, width = torch_ranker.build(PATH, '{"width": 5}', FEATURES)
    assert width == 15
    assert isinstance(backbone, rankers.TwoTower)
    assert backbone.training


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tests.support.rankers", "expected package.module:Class"),
        ("tests.support.nothing:TwoTower", "can't be imported"),
        ("tests.support.rankers:Nothing", "is not a torch.nn.Module, but missing"),
        ("tests.support.rankers:NotAModule", "is not a torch.nn.Module, but the class NotAModule"),
        ("tests.support.rankers:ThreeDimensional", r"shape \[3, 1, 36\] for 3 rows, expected \[3, width\]"),
        ("tests.support.rankers:Scalar", r"shape \[\] for 3 rows"),
        ("tests.support.rankers:DoublePrecision", r"torch.float64, expected torch.float32"),
    ],
)
def test_what_is_not_a_backbone_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        torch_ranker.build(path, "{}", FEATURES)


def test_options_are_json_or_words() -> None:
    assert json.loads(torch_ranker.parse_options(["width=5", "kind=deep", "sizes=[1, 2]"])) == {
        "width": 5,
        "kind": "deep",
        "sizes": [1, 2],
    }
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        torch_ranker.parse_options(["width"])
    with pytest.raises(ConfigError, match="see --backbone-option"):
        torch_ranker.build(PATH, '{"depth": 3}', FEATURES)


def test_training_moves_it_and_the_checkpoint_rebuilds_it(videos: Table, tmp_path: Path) -> None:
    model = small_model(head="cr", own=PATH, own_options='{"width": 5, "normalised": true}')
    trainer = Trainer(videos, "videos", model, brief_training(), tmp_path)
    assert isinstance(trainer.model, TorchRankerModel)
    tables = [table.detach().clone() for table in trainer.model.tables()]
    saved = trainer.run()
    assert [tuple(table.shape) for table in tables] == [(151, 6), (61, 6)]
    assert all(not torch.equal(*pair) for pair in zip(tables, trainer.model.tables(), strict=True))
    loaded = Checkpoint.load(tmp_path)
    batch = {name: torch.from_numpy(values) for name, values in saved.encoding.encode(videos).items()}
    with torch.no_grad():
        assert torch.equal(loaded.model.phi(batch), saved.model.phi(batch))
    assert loaded.model.effects is not None


def test_changed_code_is_noticed(videos: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Trainer(videos, "videos", small_model(head="cr", own=PATH), brief_training(epochs=1), tmp_path).run()
    content = load_file(tmp_path / FILE)
    # The same weights fit this class, which does something else with them.
    content["model"]["own"] = "tests.support.rankers:CentredRows"
    save_atomically(content, tmp_path / FILE)
    with pytest.raises(CheckpointError, match=r"the code of .*CentredRows has changed since training"):
        Checkpoint.load(tmp_path)
    content["model"]["own"] = "tests.support.gone:TwoTower"
    save_atomically(content, tmp_path / FILE)
    with pytest.raises(CheckpointError, match=r"can't be loaded: backbone .* can't be imported"):
        Checkpoint.load(tmp_path)


def test_a_backbone_that_keeps_distances_is_not_warned_about() -> None:
    backbone, _ = torch_ranker.build(PATH, "{}", FEATURES)
    assert "not known to preserve distances" in torch_ranker.distance_note(PATH, backbone)
    backbone.preserves_distances = True  # type: ignore[assignment]  # an attribute of any type
    assert torch_ranker.distance_note(PATH, backbone) == ""


class TestCommand:
    def test_train_finds_a_class_in_the_working_directory(
        self, ghostless: Ghostless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "my_team_ranker.py").write_text("from tests.support.rankers import TwoTower as Ranker\n")
        monkeypatch.chdir(tmp_path)
        brief = ("--data", "synthetic:3000", "--steps", "5", "--bins", "12", "--json")
        own = ("--backbone", "my_team_ranker:Ranker", "--backbone-option", "width=4")
        status, out, err = ghostless("train", *brief, *own, "--out", tmp_path / "run")
        monkeypatch.delitem(sys.modules, "my_team_ranker", raising=False)
        assert status == 0, err
        assert any("not known to preserve distances" in note for note in json.loads(out)["notes"])
        kept = json.loads((tmp_path / "run" / "run.json").read_text())["model"]
        assert (kept["own"], kept["own_options"]) == ("my_team_ranker:Ranker", '{"width": 4}')

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--backbone", "deep"), "--backbone is 'deep', expected cross, sn+cross"),
            (("--backbone-option", "width=4"), "needs a --backbone of your own"),
        ],
    )
    def test_wrong_options(self, ghostless: Ghostless, words: tuple[str, ...], message: str) -> None:
        status, _, err = ghostless("train", "--data", "synthetic:300", *words)
        assert status == 1
        assert message in " ".join(err.split())
