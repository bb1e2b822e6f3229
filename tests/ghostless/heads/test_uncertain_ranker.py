"""A vanilla ranker gets a head in a loop that is not ours: calibrated, with an epistemic part that ids explain."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ghostless.contract.errors import ConfigError
from ghostless.heads import UncertainRanker
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table

IDS = ("user_id", "video_id")


class Tower(nn.Module):
    """A ranker that knows nothing of Ghostless; videos beyond its table share row 60."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.videos = nn.Embedding(151, 8), nn.Embedding(61, 8)
        self.layers = nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 12), nn.SiLU())

    def forward(self, pairs: tuple[Tensor, Tensor]) -> Tensor:
        users, videos = pairs
        both = torch.cat([self.users(users), self.videos(videos.clamp(max=60))], -1)
        output: Tensor = self.layers(both)
        return output


def parts(rows: int = 9000) -> list[Table]:
    table = SyntheticVideos(seed=0, users=150, items=60).sample(rows, seed=0)
    return [table.take(slice(start, start + rows // 3)) for start in range(0, rows, rows // 3)]


def features(table: Table) -> tuple[Tensor, Tensor]:
    users, videos = (torch.from_numpy(table.columns[name]) for name in IDS)
    return users, videos


def ids(table: Table) -> dict[str, np.ndarray]:
    return {name: table.columns[name] for name in IDS}


@pytest.fixture(scope="module", params=["cr", "qr"])
def fitted(request: pytest.FixtureRequest) -> UncertainRanker:
    train, held_out, _ = parts()
    torch.manual_seed(0)
    ranker = UncertainRanker(Tower(), width=12, targets=train.target, head=request.param, bins=20)
    optimizer = torch.optim.Adam(ranker.parameter_groups(5e-3))
    for epoch in range(4):
        for batch in train.batches(256, seed=0, epoch=epoch):
            optimizer.zero_grad()
            ranker.loss(features(batch), torch.from_numpy(batch.target)).backward()
            optimizer.step()
    ranker.finish(
        (features(batch) for batch in train.batches(1000)), features(held_out), torch.from_numpy(held_out.target)
    )
    ranker.fit_effects(ids(train), train.target, ids(held_out), features(held_out), context=["user_id"])
    return ranker


@torch.no_grad()
def test_intervals_cover_fresh_rows(fitted: UncertainRanker) -> None:
    test = parts()[2]
    predictive = fitted.predict(features(test), ids(test))
    ends = predictive.quantiles(torch.tensor([0.05, 0.25, 0.75, 0.95])).numpy()
    inside = [np.mean((ends[:, low] <= test.target) & (test.target <= ends[:, high])) for low, high in ((0, 3), (1, 2))]
    # Three standard errors of a share of 3,000 rows, and the same again for the 3,000 calibration rows.
    assert inside[0] == pytest.approx(0.9, abs=0.033)
    assert inside[1] == pytest.approx(0.5, abs=0.055)


@torch.no_grad()
def test_unknown_ids_have_a_larger_epistemic_part_of_the_same_total(fitted: UncertainRanker) -> None:
    test = parts()[2]
    known = fitted.predict(features(test), ids(test))
    unknown = fitted.predict(features(test), {name: np.full(test.rows, -1) for name in IDS})
    assert (unknown.epistemic() > known.epistemic()).all()
    assert (known.epistemic_candidate() < known.epistemic()).all()
    assert torch.allclose(known.variance(), unknown.variance())


def test_the_pair_test_does_not_refute_it(fitted: UncertainRanker) -> None:
    test = parts()[2]
    found = fitted.judge_pairs(features(test), ids(test), test.target)
    assert found.rows == test.rows
    assert {figure.feature for figure in found.figures} == set(IDS)
    assert found.verdict != "disagrees"


def test_a_wrong_width_is_named() -> None:
    train = parts(300)[0]
    ranker = UncertainRanker(Tower(), width=8, targets=train.target)
    with pytest.raises(ConfigError, match=r"returns \[100, 12\], expected a tensor of shape \[rows, 8\]"):
        ranker.loss(features(train), torch.from_numpy(train.target))


def test_constant_targets_and_missing_ids_are_refused(fitted: UncertainRanker) -> None:
    with pytest.raises(ConfigError, match="not all equal"):
        UncertainRanker(Tower(), width=12, targets=np.ones(5))
    test = parts(300)[2]
    with pytest.raises(ConfigError, match="no 'video_id'"):
        fitted.predict(features(test), {"user_id": test.columns["user_id"]})
    with pytest.raises(ConfigError, match="fit_effects first"):
        UncertainRanker(Tower(), 12, test.target).judge_pairs(features(test), ids(test), test.target)
