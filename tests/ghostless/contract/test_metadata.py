"""Formats of the metadata: the present one, and files of the one before."""

import json
from dataclasses import replace

import pytest

from ghostless.contract import metadata
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FORMAT, ModelMetadata, TargetSpec

DESCRIBED = ModelMetadata(
    name="demo",
    head="cr",
    method="vbll",
    features=(),
    target=TargetSpec("y", "s", 0.0, 1.0),
    levels=(0.5,),
    edges=(0.0, 0.25, 1.0),
    knots=(0.0, 0.0, 0.25, 1.0),
    atoms=(0.0,),
)


def test_atoms_are_written_and_read() -> None:
    read = ModelMetadata.parse(DESCRIBED.dump(), "demo")
    assert read == DESCRIBED
    assert read.format == FORMAT == 3
    assert read.widths()[metadata.ATOMS] == 1


def test_ranges_are_written_and_read_and_may_be_absent() -> None:
    described = replace(DESCRIBED, ranges={"duration": (5.0, 120.5)})
    assert ModelMetadata.parse(described.dump(), "demo").ranges == {"duration": (5.0, 120.5)}
    before = {key: value for key, value in described.dump().items() if key != "ghostless.ranges"}
    assert ModelMetadata.parse({**before, "ghostless.format": "2"}, "before").ranges == {}
    with pytest.raises(InvalidModelError, match="malformed metadata"):
        ModelMetadata.parse({**described.dump(), "ghostless.ranges": '{"duration": [5.0]}'}, "broken")


def test_a_file_of_format_1_has_no_atoms_and_an_uncalibrated_cdf() -> None:
    props = {key: value for key, value in DESCRIBED.dump().items() if key != "ghostless.atoms"}
    read = ModelMetadata.parse({**props, "ghostless.format": json.dumps(1)}, "old")
    assert read.atoms == ()
    assert read.format < metadata.CALIBRATED_CDF


def test_a_file_of_this_format_must_name_its_atoms() -> None:
    props = {key: value for key, value in DESCRIBED.dump().items() if key != "ghostless.atoms"}
    with pytest.raises(InvalidModelError, match=r"lacks ghostless\.atoms"):
        ModelMetadata.parse(props, "new")
