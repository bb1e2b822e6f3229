"""Draws from the posterior accept what the closed forms say, and nothing else."""

from pathlib import Path

import pytest

from export import reference, rows, sampling
from export.builder import Array
from export.graph import Networks
from ghostless.contract import metadata
from learning.data.video import VIDEO_SCHEMA
from tests.support import torch_models as models

DRAWS = 2000
COMPARED = [
    metadata.MEAN,
    metadata.BINS,
    metadata.EPISTEMIC_LAST_LAYER,
    metadata.EPISTEMIC,
    metadata.EPISTEMIC_CANDIDATE,
]


@pytest.fixture(scope="module", params=["qr", "cr", "pool"])
def sampled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "SampledAnswers":
    if request.param == "pool":
        networks = Networks.trained(models.pool(VIDEO_SCHEMA, levels=20, groups=10))
    else:
        networks = models.alone(models.video_checkpoint(head=request.param, levels=20, groups=10))
    return SampledAnswers(networks, tmp_path_factory.mktemp("sampled"))


class SampledAnswers:
    """A model with a visible posterior, and its served answers for a few rows."""

    def __init__(self, networks: Networks, directory: Path) -> None:
        served = models.serve(networks, directory)
        columns = rows.plausible(networks.first.encoding, 24, 0)
        self.networks, self.layout = served.networks, served.layout
        self.encoded = [reference.encode(checkpoint, columns) for checkpoint in networks.checkpoints]
        self.answers = served(columns)

    def failing(self, answers: dict[str, Array], seed: int = 0) -> list[str]:
        """Names of the outputs that the draws reject."""
        figures = sampling.compare(self.networks, self.encoded, answers, self.layout, DRAWS, seed)
        assert [figure.name for figure in figures] == [name for name in COMPARED if name in answers]
        return [figure.name for figure in figures if not figure.ok]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_truth_is_accepted(sampled: SampledAnswers, seed: int) -> None:
    assert sampled.failing(sampled.answers, seed) == []


def test_outputs_that_are_not_there_are_not_compared(sampled: SampledAnswers) -> None:
    assert sampled.failing({metadata.MEAN: sampled.answers[metadata.MEAN]}) == []


@pytest.mark.parametrize("name", [metadata.EPISTEMIC_LAST_LAYER, metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE])
@pytest.mark.parametrize("factor", [0.0, 0.7, 1.4])
def test_a_part_of_another_size_is_rejected(sampled: SampledAnswers, name: str, factor: float) -> None:
    assert sampled.failing({**sampled.answers, name: factor * sampled.answers[name]}) == [name]


def test_a_shifted_mean_is_rejected(sampled: SampledAnswers) -> None:
    shifted = {**sampled.answers, metadata.MEAN: sampled.answers[metadata.MEAN] + 0.3}
    assert sampled.failing(shifted) == [metadata.MEAN]


def test_mass_in_the_wrong_bin_is_rejected(sampled: SampledAnswers) -> None:
    bins = sampled.answers[metadata.BINS].copy()
    # One row of all, and no more than moved: the sum stays 1.
    fullest = int(bins[3].argmax())
    bins[3, fullest] -= 0.1
    bins[3, fullest - 1] += 0.1
    assert sampled.failing({**sampled.answers, metadata.BINS: bins}) == [metadata.BINS]
