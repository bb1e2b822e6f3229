"""Ensembles and MC-dropout: the mixture of members, from the members' own answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import reference
from export.builder import Array
from export.errors import OptionError
from export.graph import Networks
from export.options import ExportOptions
from export.verification import TOLERANCE, error_against, relative_error
from ghostless.contract import metadata
from tests.support import torch_models as models

HEADS = ("qr", "cr")
GRID = (0.1, 0.6, 1.3, 2.2)
SEEDS = (3, 4, 5)


def split_answers(head: str, directory: Path) -> tuple[dict[str, Array], list[dict[str, Array]]]:
    """The fused graph's answers, and each member's from a graph of its own."""
    networks = models.ensemble(SEEDS, head=head)
    wanted = ExportOptions(grid=GRID)
    columns = models.some_rows(networks.first, 100)
    fused = models.serve(networks, directory / "fused", wanted)(columns)
    members = [
        models.serve(models.alone(checkpoint), directory / str(place), wanted)(columns)
        for place, checkpoint in enumerate(networks.checkpoints)
    ]
    return fused, members


def close(got: Array, expected: Array, floor: float = 1e-2) -> bool:
    return relative_error(got, expected, floor) <= 1e-4


@pytest.mark.parametrize("head", HEADS)
def test_an_ensemble_is_the_mixture_of_its_members(head: str, tmp_path: Path) -> None:
    fused, members = split_answers(head, tmp_path)
    stacked = {name: np.stack([member[name] for member in members]).astype(np.float64) for name in members[0]}
    assert list(fused) == list(members[0])
    for name in (metadata.MEAN, metadata.ALEATORIC, metadata.CDF, metadata.BINS, metadata.DENSITY):
        assert close(fused[name], stacked[name].mean(0)), name
    assert close(fused[metadata.EPISTEMIC], stacked[metadata.MEAN].var(0))
    # The law of total variance, with the members equally likely.
    second = (stacked[metadata.ALEATORIC] + stacked[metadata.MEAN] ** 2).mean(0)
    total = fused[metadata.ALEATORIC].astype(np.float64) + fused[metadata.EPISTEMIC]
    assert close(total, second - stacked[metadata.MEAN].mean(0) ** 2)
    if head == "cr":
        # Over the segments, atoms among them, not over the bins that they lie in.
        p = np.diff(stacked[metadata.CDF], axis=-1)
        assert close(fused[metadata.CATEGORICAL_EPISTEMIC], p.var(0).sum(-1))
        assert close(fused[metadata.CATEGORICAL_ALEATORIC], (1.0 - (p**2).sum(-1)).mean(0))


def test_one_members_usual_logit_variance_is_not_told_of_all(tmp_path: Path) -> None:
    """A deterministic member has none at all, so every row would count as out of distribution."""
    figures = {"nll": 1.0, "logit_variance_p50": 0.0, "logit_variance_p999": 0.25}
    together = models.ensemble(SEEDS)
    members = [replace(checkpoint, metrics=figures) for checkpoint in together.checkpoints]
    fused = models.serve(Networks.ensemble(members), tmp_path / "fused").loaded.metadata
    assert (fused.calibration, fused.out_of_distribution_over) == ({"nll": 1.0}, None)
    alone = models.serve(models.alone(members[0]), tmp_path / "alone").loaded.metadata
    assert (alone.calibration, alone.out_of_distribution_over) == (figures, 0.25)


@pytest.mark.parametrize("head", HEADS)
def test_members_that_agree_know_everything(head: str, tmp_path: Path) -> None:
    networks = models.ensemble((3, 3), head=head)
    columns = models.some_rows(networks.first, 100)
    fused = models.serve(networks, tmp_path / "twice")(columns)
    once = models.serve(models.alone(networks.first), tmp_path / "once")(columns)
    for name in (metadata.EPISTEMIC, metadata.LOGIT_VARIANCE):
        assert (fused[name] == 0.0).all(), name
    for name in (metadata.MEAN, metadata.ALEATORIC, metadata.QUANTILES, metadata.BINS):
        assert close(fused[name], once[name], 0.1), name


@pytest.mark.parametrize("head", HEADS)
def test_members_look_ids_up_in_their_own_vocabulary(head: str, tmp_path: Path) -> None:
    """Each member was trained on a part of its own, so what one knows may be unknown to another."""
    config = models.config(method="deterministic", head=head)
    table = models.random_table(models.EVERY_KIND)
    parts = table.split(0.5, seed=1)
    members = [models.shaken(models.EVERY_KIND, config, seed, part) for seed, part in enumerate(parts)]
    networks = Networks.ensemble([*members, models.shaken(models.EVERY_KIND, config, 2, table.take(np.arange(30)))])
    served = models.serve(networks, tmp_path)
    assert len({len(member.encoding.vocabularies["user"]) for member in networks.checkpoints}) > 1
    columns = {name: values[:300] for name, values in table.columns.items()}
    got, expected = served(columns), reference.answer(networks, columns, served.layout)
    for name in got:
        assert close(got[name], expected[name]), name


def test_members_must_be_alike() -> None:
    first = models.shaken(models.EVERY_KIND, models.config(method="deterministic"))
    narrower = models.shaken(
        replace(models.EVERY_KIND, features=models.EVERY_KIND.features[1:]), models.config(method="deterministic")
    )
    wider = models.shaken(models.EVERY_KIND, models.config(method="deterministic", hidden=(32, 8)))
    for other in (narrower, wider):
        with pytest.raises(OptionError, match="must share schema and model options"):
            Networks.ensemble([first, other])


def test_members_with_a_posterior_are_refused() -> None:
    posterior = models.shaken()
    with pytest.raises(OptionError, match="train them with --method deterministic"):
        Networks.ensemble([posterior, posterior])


def dropout(rate: float = 0.3, **changes: str) -> Networks:
    checkpoint = models.shaken(models.EVERY_KIND, models.config(method="deterministic", dropout=rate, **changes))
    return Networks.fixed_dropout(checkpoint, 6, seed=1)


@pytest.mark.parametrize("backbone", ["sn", "sn+raw", "spectral-residual"])
@pytest.mark.parametrize("head", HEADS)
def test_mc_dropout_averages_thinned_networks(head: str, backbone: str, tmp_path: Path) -> None:
    networks = dropout(head=head, backbone=backbone)
    served = models.serve(networks, tmp_path, ExportOptions(grid=GRID))
    assert (networks.method, networks.members) == ("mc-dropout-fixed", 6)
    columns = models.some_rows(networks.first, 100)
    got, expected = served(columns), reference.answer(networks, columns, served.layout)
    for name in served.layout.outputs:
        assert error_against(expected, got, name, served.layout) <= TOLERANCE["fp32"], name
    assert (got[metadata.EPISTEMIC] > 0).any()


def test_masks_repeat_by_seed_and_keep_the_expectation() -> None:
    checkpoint = models.shaken(models.EVERY_KIND, models.config(method="deterministic", dropout=0.3, hidden=(64, 32)))
    masks = Networks.fixed_dropout(checkpoint, 500, seed=7).masks
    assert [mask.shape for mask in masks] == [(500, 1, 64), (500, 1, 32)]
    for mask, again in zip(masks, Networks.fixed_dropout(checkpoint, 500, seed=7).masks, strict=True):
        assert np.array_equal(mask, again)
        assert np.unique(mask).tolist() == pytest.approx([0.0, 1.0 / 0.7])
        assert mask.mean() == pytest.approx(1.0, abs=0.02)
    assert not np.array_equal(masks[0], Networks.fixed_dropout(checkpoint, 500, seed=8).masks[0])


def test_answers_of_fixed_masks_repeat(tmp_path: Path) -> None:
    served = models.serve(dropout(), tmp_path)
    columns = models.some_rows(served.networks.first, 50)
    first, second = served(columns), served(columns)
    for name in first:
        assert np.array_equal(first[name], second[name])


@pytest.mark.parametrize(
    ("changes", "samples", "complaint"),
    [
        ({"method": "deterministic", "dropout": 0.0}, 5, "trained with dropout"),
        ({"method": "vbll"}, 5, "needs a deterministic network"),
        ({"method": "deterministic", "dropout": 0.1}, 1, "2 samples or more, not 1"),
        ({"method": "deterministic", "dropout": 0.1}, -3, "2 samples or more, not -3"),
    ],
)
def test_what_can_not_be_mc_dropout_is_refused(changes: dict[str, Any], samples: int, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        Networks.mc_dropout(models.shaken(models.EVERY_KIND, models.config(**changes)), samples)


@pytest.mark.parametrize("head", HEADS)
def test_all_methods_answer_through_the_same_outputs(head: str, tmp_path: Path) -> None:
    every = [
        models.alone(models.shaken(models.EVERY_KIND, models.config(head=head))),
        models.alone(models.shaken(models.EVERY_KIND, models.config(head=head, method="deterministic"))),
        models.ensemble((0, 1), head=head),
        dropout(head=head),
    ]
    assert [networks.method for networks in every] == ["vbll", "deterministic", "ensemble", "mc-dropout-fixed"]
    shapes = []
    for place, networks in enumerate(every):
        served = models.serve(networks, tmp_path / str(place))
        assert served.loaded.metadata.method == networks.method
        answers = served(models.some_rows(networks.first, 10))
        shapes.append({name: values.shape for name, values in answers.items()})
    assert all(shape == shapes[0] for shape in shapes)
