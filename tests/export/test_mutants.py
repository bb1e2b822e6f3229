"""Every fault of the closed forms is caught, and by a check that does not go by torch."""

from collections.abc import Iterator

import pytest

from export import mutants, options, verification
from export.graph import Networks
from export.mutants import Caught
from export.options import ExportOptions
from learning.checkpoint import Checkpoint
from tests.support import torch_models as models

DRAWS = f"against {verification.DRAWS} posterior draws"
CAUGHT_BY = {
    "epistemic is 0": f"epistemic: {DRAWS}",
    "epistemic times 3": f"epistemic: {DRAWS}",
    "epistemic divided by 3": f"epistemic: {DRAWS}",
    "context and candidate swapped": f"epistemic_candidate: {DRAWS}",
    "no map": f"bins: {DRAWS}",
    "map on quantiles alone": "quantiles: against the CDF, random rows",
    "F(y-) = F(y) at atoms": f"bins: {DRAWS}",
    "no temperature": f"bins: {DRAWS}",
}


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RANDOM_ROWS": 400, "BATCH_ROWS": 64, "ALONE_ROWS": 4, "SAMPLED_ROWS": 12}.items():
            patch.setattr(verification, name, value)
        yield


def with_effects(head: str) -> Checkpoint:
    checkpoint = models.with_atoms(temperature=1.25 if head == "cr" else 1.0, head=head)
    checkpoint.model.effects = models.random_effects(checkpoint.encoding)
    return checkpoint


@pytest.fixture(scope="module", params=["cr", "qr"])
def caught(request: pytest.FixtureRequest) -> dict[str, Caught]:
    networks = models.alone(with_effects(request.param))
    return {each.name: each for each in mutants.survey(networks, layout_of(networks))}


def layout_of(networks: Networks) -> options.Layout:
    return options.resolve(ExportOptions(), networks.first, bool(networks.weights), networks.calibration)


def test_the_graph_itself_passes(caught: dict[str, Caught]) -> None:
    assert caught[mutants.HONEST].failed == ()
    assert [*caught] == [mutants.HONEST, *CAUGHT_BY]


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_is_caught_without_torch(caught: dict[str, Caught], name: str) -> None:
    if not caught[name].applies:
        # QR has no temperature.
        assert name == "no temperature"
        return
    assert CAUGHT_BY[name] in caught[name].by_others
    assert caught[name].by_torch


def test_what_a_model_does_not_have_can_not_be_wrong() -> None:
    networks = models.alone(models.shaken(models.EVERY_KIND, models.config(head="cr")))
    kept = {mutant.name for mutant in mutants.mutants(networks, layout_of(networks)) if mutant.run is not None}
    assert kept == {"epistemic is 0", "epistemic times 3", "epistemic divided by 3", "F(y-) = F(y) at atoms"}
