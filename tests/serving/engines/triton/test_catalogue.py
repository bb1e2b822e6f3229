"""Which version serves, from what all Tritons report."""

from collections.abc import Mapping
from typing import Any

import pytest

from serving.engines.interface import VersionState
from serving.engines.triton import TritonEngine
from serving.engines.triton.catalogue import Catalogue
from serving.engines.triton.state import RemoteModel
from serving.errors import NotFoundError, UnavailableError
from tests.support.onnx_models import CR_OUTPUTS, SMALL, metadata_of


def _state(ready: set[int], in_service: int = 0, **changes: Any) -> Mapping[str, RemoteModel]:
    properties = {version: metadata_of(SMALL).dump() for version in ready}
    values: dict[str, Any] = {"max_rows": 64, "outputs": CR_OUTPUTS, "properties": properties, **changes}
    return {"demo": RemoteModel("demo", frozenset(ready), in_service=in_service, **values)}


def _catalogue(pointer: int = 0) -> Catalogue:
    return Catalogue("", lambda name, version: None, lambda name: pointer)


def test_a_roll_out_switches_once_all_tritons_say_so() -> None:
    catalogue = _catalogue()
    for told, expected in [((1, 1), 1), ((2, 1), 1), ((2, 2), 2), ((1, 2), 2), ((1, 1), 1)]:
        catalogue.update([_state({1, 2}, in_service) for in_service in told])
        assert catalogue.snapshot.resolve("demo", 0).version == expected


def test_without_a_word_the_repository_decides_and_else_what_all_have() -> None:
    states = [_state({1, 2}), _state({1, 2, 3})]
    catalogue = _catalogue(pointer=1)
    catalogue.update(states)
    assert catalogue.snapshot.resolve("", 0).version == 1
    catalogue = _catalogue()
    catalogue.update(states)
    assert catalogue.snapshot.resolve("", 0).version == 2
    assert catalogue.snapshot.resolve("", 3).version == 3


def test_a_version_keeps_its_identity_and_models_stay_known_while_all_are_away() -> None:
    catalogue = _catalogue()
    catalogue.update([_state({1})])
    known = catalogue.snapshot.resolve("demo", 1)
    catalogue.update([_state({1}), _state({1})])
    assert catalogue.snapshot.resolve("demo", 1) is known
    catalogue.update([])
    assert catalogue.snapshot.resolve("demo", 0) is known
    catalogue.update([_state({1}, max_rows=32)])
    assert catalogue.snapshot.resolve("demo", 1) is not known


def test_a_version_without_metadata_is_listed_as_failed() -> None:
    catalogue = _catalogue()
    catalogue.update([_state({1}, properties={})])
    (status,) = catalogue.snapshot.statuses()
    assert status.versions[0].state is VersionState.FAILED
    assert "no ghostless.* parameters" in status.versions[0].message
    assert not catalogue.snapshot.is_ready()
    with pytest.raises(UnavailableError, match="no version ready"):
        catalogue.snapshot.resolve("demo", 0)
    with pytest.raises(NotFoundError, match="no model 'other'; available: demo"):
        catalogue.snapshot.resolve("other", 0)


def test_before_any_triton_was_reached_a_request_may_come_again() -> None:
    with pytest.raises(UnavailableError, match="no Triton server has been reached yet"):
        TritonEngine(["127.0.0.1:1"], queue_rows=1).resolve("", 0)
