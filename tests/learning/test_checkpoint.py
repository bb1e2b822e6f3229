"""Checkpoints: what was saved comes back, and what is no checkpoint is refused in one clear line."""

import json
from pathlib import Path

import pytest
import torch

from learning.checkpoint import FILE, Checkpoint
from learning.data.table import Table
from learning.errors import CheckpointError


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        Checkpoint.load(path)
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    return message


class TestRoundTrip:
    def test_predictions_are_the_same_to_the_bit(self, run: Path, videos: Table, tmp_path: Path) -> None:
        first = Checkpoint.load(run)
        first.save(tmp_path)
        second = Checkpoint.load(tmp_path / FILE)
        batch = {name: torch.from_numpy(values) for name, values in first.encoding.encode(videos).items()}
        with torch.no_grad():
            levels = torch.tensor([0.1, 0.5, 0.9])
            answers = [c.model.predict(batch).quantiles(levels) for c in (first, second)]
        assert torch.equal(*answers)
        assert not second.model.training

    def test_everything_beside_the_weights_comes_back(self, run: Path, videos: Table) -> None:
        checkpoint = Checkpoint.load(run)
        assert checkpoint.schema == videos.schema
        assert checkpoint.fingerprint == videos.fingerprint()
        assert checkpoint.data == "videos"
        assert checkpoint.model_config.hidden == (16, 8)
        assert checkpoint.train_config.batch_rows == 256
        assert checkpoint.metrics["train_rows"] == 2160
        assert 0 < checkpoint.metrics["logit_variance_p50"] <= checkpoint.metrics["logit_variance_p999"]

    def test_run_json_says_the_same_to_people(self, run: Path) -> None:
        summary = json.loads((run / "run.json").read_text())
        assert sorted(summary) == ["data", "fingerprint", "metrics", "model", "schema", "train"]
        assert summary["model"]["head"] == run.name

    def test_nothing_half_written_is_left_beside_it(self, run: Path) -> None:
        assert sorted(path.name for path in run.iterdir()) == [FILE, "run.json"]


class TestRefusals:
    def test_missing(self, tmp_path: Path) -> None:
        assert "ghostless train" in refusal(tmp_path)
        assert "no such checkpoint" in refusal(tmp_path / "nowhere.pt")

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
    def test_truncated(self, run: Path, tmp_path: Path, share: float) -> None:
        content = (run / FILE).read_bytes()
        (tmp_path / FILE).write_bytes(content[: int(share * len(content))])
        assert "damaged" in refusal(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 looks like a zip", b"\x80\x02."])
    def test_foreign(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "foreign.pt").write_bytes(content)
        refusal(tmp_path / "foreign.pt")

    def test_a_tensor(self, tmp_path: Path) -> None:
        torch.save(torch.zeros(3), tmp_path / "tensor.pt")
        assert "not a Ghostless checkpoint but a Tensor" in refusal(tmp_path / "tensor.pt")

    def test_code_in_a_pickle_is_not_run(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return Path.touch, (tmp_path / "attacked",)  # type: ignore[return-value]  # what it holds is no matter

        torch.save({"format": 1, "state": Attack()}, tmp_path / "attack.pt")
        refusal(tmp_path / "attack.pt")
        assert not (tmp_path / "attacked").exists()

    def test_another_format(self, run: Path, tmp_path: Path) -> None:
        content = torch.load(run / FILE, weights_only=True)
        torch.save({**content, "format": 99}, tmp_path / "new.pt")
        assert "format 99" in refusal(tmp_path / "new.pt")

    @pytest.mark.parametrize(
        "change",
        [
            {"state": {}},
            {"model": {"head": "qr", "hidden": (4,), "unheard_of": 1}},
            {"encoding": {}},
            {"schema": {}},
            {"train": {"epochs": -1}},
            {"hidden": [3, 8]},
            {"model": {"hidden": (4,), "levels": 7}},
        ],
    )
    def test_contents_that_do_not_fit(self, run: Path, tmp_path: Path, change: dict[str, object]) -> None:
        content = torch.load(run / FILE, weights_only=True)
        torch.save({**content, **change}, tmp_path / "changed.pt")
        refusal(tmp_path / "changed.pt")

    @pytest.mark.parametrize(
        "key", ["model", "schema", "encoding", "state", "hidden", "train", "data", "fingerprint", "metrics"]
    )
    def test_a_part_that_is_missing(self, run: Path, tmp_path: Path, key: str) -> None:
        content = torch.load(run / FILE, weights_only=True)
        del content[key]
        torch.save(content, tmp_path / "part.pt")
        assert key in refusal(tmp_path / "part.pt")
