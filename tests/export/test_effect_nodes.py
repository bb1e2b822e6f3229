"""The ids' effects in the graph: what torch computes, what their posterior says, and which part is the candidate's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import publish, reference, rows, sampling, verification
from export.graph import Networks
from ghostless.contract import metadata
from ghostless.contract.metadata import ModelMetadata
from ghostless.contract.pair_test import PairFigure, PairTest
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models

FORMS: dict[str, dict[str, Any]] = {
    "crossed": {},
    "nested": {"parents": {"hash": "category"}},
    "nested-in-context": {"parents": {"user": "category"}},
    "chain": {"parents": {"hash": "category", "category": "user"}},
    "pair": {"pair": ("user", "hash")},
    "nested-pair": {"pair": ("user", "hash"), "parents": {"hash": "category"}},
    "below-a-pair": {"pair": ("user", "category"), "parents": {"hash": "category"}},
}
IGNORANCE = (metadata.EPISTEMIC, metadata.EPISTEMIC_CANDIDATE, metadata.EPISTEMIC_LAST_LAYER)


def with_effects(head: str = "cr", gamma: int = 1, **form: Any) -> Checkpoint:
    checkpoint = models.with_atoms(temperature=1.2, head=head) if head == "cr" else models.with_atoms(head=head)
    checkpoint.model.effects = models.random_effects(checkpoint.encoding, gamma=gamma, **form)
    return checkpoint


def assert_exact(served: models.ExportedGraph) -> None:
    columns = models.some_rows(served.networks.first)
    expected, got = reference.answer(served.networks, columns, served.layout), served(columns)
    for name in served.layout.outputs:
        assert verification.error_against(expected, got, name, served.layout) <= 1e-4, name


@pytest.mark.parametrize("gamma", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_the_graph_is_what_torch_computes(form: str, gamma: int, tmp_path: Path) -> None:
    assert_exact(models.serve(models.alone(with_effects(gamma=gamma, **FORMS[form])), tmp_path))


@pytest.mark.parametrize("form", ["crossed", "nested-pair"])
def test_both_heads_have_them(form: str, tmp_path: Path) -> None:
    assert_exact(models.serve(models.alone(with_effects("qr", **FORMS[form])), tmp_path))


@pytest.mark.parametrize("gamma", [0, 1])
def test_a_pool_has_those_of_its_first_network(gamma: int, tmp_path: Path) -> None:
    trained = models.pool()
    trained.first.model.effects = models.random_effects(trained.first.encoding, gamma=gamma)
    assert_exact(models.serve(Networks.trained(trained), tmp_path))


@pytest.mark.parametrize("form", FORMS)
def test_draws_from_their_posterior_agree(form: str, tmp_path: Path) -> None:
    """And reject variances of which a fifth is missing."""
    networks = models.alone(with_effects(**FORMS[form]))
    served = models.serve(networks, tmp_path)
    columns = rows.plausible(networks.first.encoding, 12, 0, unknown=0.2)
    encoded, answers = [reference.encode(networks.first, columns)], served(columns)

    def rejected(**changed: Any) -> list[str]:
        figures = sampling.compare(networks, encoded, {**answers, **changed}, served.layout, 8000, 0)
        return [figure.name for figure in figures if not figure.ok]

    assert rejected() == []
    assert set(rejected(**{name: 0.8 * answers[name] for name in IGNORANCE})) == set(IGNORANCE)


def test_a_context_feature_counts_for_the_row_and_not_for_the_candidate(tmp_path: Path) -> None:
    """The same network with half of the user's variance. With gamma 1 less of V would be noise, of which both are a
    multiple."""
    checkpoint = with_effects(gamma=0)
    columns = models.some_rows(checkpoint, 50)
    before = models.serve(models.alone(checkpoint), tmp_path / "before")(columns)
    effects = checkpoint.model.effects
    assert effects is not None
    variance = {**effects.effects.variance, "user": 0.5 * effects.effects.variance["user"]}
    checkpoint.model.effects = replace(effects, effects=replace(effects.effects, variance=variance))
    after = models.serve(models.alone(checkpoint), tmp_path / "after")(columns)
    assert (before[metadata.EPISTEMIC] > before[metadata.EPISTEMIC_CANDIDATE]).all()
    # Where effects claim all that they may, they still do.
    assert (before[metadata.EPISTEMIC] >= after[metadata.EPISTEMIC]).all()
    assert (before[metadata.EPISTEMIC] > after[metadata.EPISTEMIC]).mean() > 0.9
    np.testing.assert_array_equal(before[metadata.EPISTEMIC_CANDIDATE], after[metadata.EPISTEMIC_CANDIDATE])


def test_effects_never_claim_all_of_the_variance(tmp_path: Path) -> None:
    checkpoint = with_effects()
    assert checkpoint.model.effects is not None
    checkpoint.model.effects = replace(checkpoint.model.effects, level=1e-4)
    got = models.serve(models.alone(checkpoint), tmp_path)(models.some_rows(checkpoint))
    total = got[metadata.ALEATORIC] + got[metadata.EPISTEMIC]
    assert (got[metadata.ALEATORIC] > 0.0).all()
    assert (got[metadata.EPISTEMIC] >= 0.8999 * total).all()


def test_without_context_ids_the_candidates_part_is_all_of_it(tmp_path: Path) -> None:
    checkpoint = with_effects()
    assert checkpoint.model.effects is not None
    checkpoint.model.effects = replace(checkpoint.model.effects, context=frozenset())
    served = models.serve(models.alone(checkpoint), tmp_path)
    assert_exact(served)
    got = served(models.some_rows(checkpoint, 20))
    np.testing.assert_array_equal(got[metadata.EPISTEMIC], got[metadata.EPISTEMIC_CANDIDATE])


def test_members_and_twins_split_their_variance_without(tmp_path: Path) -> None:
    networks = models.ensemble((3, 4), head="cr")
    networks.first.model.effects = models.random_effects(networks.first.encoding)
    served = models.serve(networks, tmp_path / "ensemble")
    assert_exact(served)
    got = served(models.some_rows(networks.first, 20))
    np.testing.assert_array_equal(got[metadata.EPISTEMIC], got[metadata.EPISTEMIC_CANDIDATE])
    assert not got[metadata.EPISTEMIC_LAST_LAYER].any()
    twin = models.serve(models.alone(networks.checkpoints[1]), tmp_path / "twin")
    zeros = twin(models.some_rows(networks.first, 20))
    assert not any(zeros[name].any() for name in IGNORANCE)


def test_the_file_says_how_effects_are_distributed_and_what_pairs_said(tmp_path: Path) -> None:
    figure = PairFigure("user", "all", ids=40, pairs=2000, measured=0.02, error=0.001, served=0.021)
    checkpoint = replace(with_effects(**FORMS["nested-pair"]), pairs=PairTest(500, (figure,)))
    networks = models.alone(checkpoint)
    layout = models.serve(networks, tmp_path).layout
    described = ModelMetadata.parse(publish.describe("demo", networks, layout).dump(), "demo")
    effects, fitted = described.effects, checkpoint.model.effects
    assert fitted is not None
    assert effects["features"]["hash"] == {
        "prior": pytest.approx(fitted.effects.priors["hash"]),
        "role": "candidate",
        "parent": "category",
    }
    assert (effects["rank"], effects["pair"], effects["gamma"]) == (2, ["user", "hash"], 1)
    assert (effects["level"], effects["noise"]) == (0.4, 0.2)
    assert (described.pairs["verdict"], described.pairs["rows"]) == ("agrees", 500)
    assert publish.describe("demo", models.alone(models.shaken()), layout).effects == {}
