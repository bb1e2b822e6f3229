"""The rankers of `ghostless bench own`: histories, and the way to a served graph."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.own import rankers, served, vanilla
from ghostless.heads import FeatureInput
from learning.config import TrainConfig
from learning.data.table import Table
from learning.own import fitting
from tests.export.conftest import few_rows
from tests.support import torch_models as models

__all__ = ["few_rows"]

FEATURES = (
    FeatureInput("user_id", "id", "context", 4),
    FeatureInput("video_id", "id", "candidate", 9),
    FeatureInput("duration_ms", "number", "candidate", 0),
)


def batch(users: list[int], videos: list[int]) -> dict[str, torch.Tensor]:
    numbers = torch.linspace(-1.0, 1.0, len(users))
    return {"user_id": torch.tensor(users), "video_id": torch.tensor(videos), "duration_ms": numbers}


@pytest.mark.parametrize("kind", [rankers.Din, rankers.Transformer])
def test_the_history_is_that_of_training_without_the_candidate(kind: type[rankers.Din | rankers.Transformer]) -> None:
    torch.manual_seed(0)
    ranker = kind(FEATURES, dim=4, length=3).eval()
    # Untrained, it does not listen to the history.
    for parameter in ranker.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ranker.observe(batch([1, 2, 1, 1, 0], [3, 4, 5, 6, 7]))
    ranker.observe(batch([1], [8]))
    assert ranker.history.tolist() == [[0, 0, 0], [8, 6, 5], [4, 0, 0], [0, 0, 0]]
    _, _, known = ranker.remembered(batch([1, 1, 2], [6, 3, 4]))
    assert known.tolist() == [[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    # What stands at a masked place does not matter.
    rows = batch([2], [4])
    with torch.no_grad():
        before = ranker(rows)
        ranker.history[2, 0] = 0
        assert torch.allclose(ranker(rows), before, atol=1e-6)
        ranker.history[2, 0] = 5
        assert not torch.allclose(ranker(rows), before, atol=1e-4)


@pytest.mark.usefixtures("few_rows")
def test_a_transformer_is_served_as_torch_computes_it(videos: Table, tmp_path: Path) -> None:
    checkpoint = models.shaken_ranker(videos, "benchmarks.own.rankers:Transformer")
    for parameter in checkpoint.network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    checkpoint.network.observe(
        [{key: torch.from_numpy(values) for key, values in checkpoint.encoding.encode(videos).items()}]
    )
    found = served.judged(checkpoint, "own", tmp_path, videos.take(slice(0, 200)))
    assert found.report.largest_error is not None
    assert found.report.largest_error <= 1e-4
    assert found.batch_error <= 1e-5


def test_a_vanilla_ranker_is_a_file_with_its_features(videos: Table, tmp_path: Path) -> None:
    config = TrainConfig(steps=10, batch_rows=256, test=0.0)
    made = vanilla.train("benchmarks.own.rankers:Dcn", "squared", videos, config, tmp_path / "ranker.onnx")
    ranker = fitting.load_ranker(made.file, "features", videos.schema, {})
    encoded = {key: torch.from_numpy(values) for key, values in made.checkpoint.encoding.encode(videos).items()}
    with torch.no_grad():
        expected = made.checkpoint.network.eval().phi(encoded).numpy()
    assert ranker(videos.columns) == pytest.approx(expected, abs=1e-4 * float(np.abs(expected).max()))
