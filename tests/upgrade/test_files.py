"""Checkpoints and a repository of fd7b8c1 are read: they predict, are exported again and are served."""

from pathlib import Path

import numpy as np
import pytest
import torch

from export.cli import export
from export.reference import encode
from export.rows import fed, plausible
from ghostless.contract import metadata, repository
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FORMAT, READABLE, ModelMetadata
from learning import format_1
from learning.backbone import RAMP_WIDTH
from learning.checkpoint import Checkpoint
from learning.data.load import load
from learning.evaluation import evaluate
from serving.engines.embedded import LoadedModel, load_model
from tests.export.conftest import few_rows

__all__ = ["few_rows"]

PROPS = ModelMetadata(
    name="demo",
    head="cr",
    method="vbll",
    features=(),
    target=metadata.TargetSpec("y", "s", 0.0, 1.0),
    levels=(0.5,),
    edges=(0.0, 1.0),
    knots=(0.0, 1.0),
).dump()


def loaded(root: Path, name: str) -> LoadedModel:
    return load_model(repository.find(root, name).model_file(1), name, 1, (1, 7))


@pytest.mark.parametrize("head", ["cr", "qr"])
def test_a_checkpoint_predicts(old_checkpoints: Path, head: str) -> None:
    checkpoint = Checkpoint.load(old_checkpoints / head)
    assert checkpoint.model_config.head == head
    assert checkpoint.calibration is not None
    metrics = evaluate(checkpoint, load("synthetic:300")).metrics()
    assert np.isfinite(metrics.nll)
    # As good as guessing over the target's range of a few units, at worst.
    assert metrics.nll < 3.0


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("run", ["qr", ".", "cr"])
def test_a_checkpoint_is_exported_again(old_checkpoints: Path, tmp_path: Path, run: str) -> None:
    export([old_checkpoints / run], name="again", root=tmp_path)
    assert loaded(tmp_path, "again").metadata.format == FORMAT


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("head", ["qr", "cr"])
def test_a_checkpoint_of_format_2_is_exported_again(format_2_checkpoints: Path, tmp_path: Path, head: str) -> None:
    export([format_2_checkpoints / head], name="again", root=tmp_path)
    assert loaded(tmp_path, "again").metadata.format == FORMAT


def test_a_checkpoint_is_the_same_network_in_the_present_format(old_checkpoints: Path, old_repository: Path) -> None:
    """s^2 is a quadratic form of all of phi: it shows any column that lies in a wrong place. The mean is today's sum
    over the bins of a CDF, fd7b8c1's was the mixture's own."""
    checkpoint = Checkpoint.load(old_checkpoints / "qr")
    rows = plausible(checkpoint.encoding, 50, 0)
    old = loaded(old_repository, "quantiles").run(fed(rows), (metadata.MEAN, metadata.LOGIT_VARIANCE))
    with torch.no_grad():
        uncalibrated = checkpoint.network.uncalibrated(encode(checkpoint, rows))
    np.testing.assert_allclose(uncalibrated.logit_variance.numpy(), old[metadata.LOGIT_VARIANCE], 1e-4)
    np.testing.assert_allclose(uncalibrated.mean().numpy(), old[metadata.MEAN], 1e-2)
    assert np.std(old[metadata.MEAN]) > 0.02


@pytest.mark.parametrize("head", ["cr", "qr"])
def test_novelty_columns_become_columns_of_the_ids(
    format_2_checkpoints: Path, format_2_repository: Path, head: str
) -> None:
    checkpoint = Checkpoint.load(format_2_checkpoints / head)
    assert checkpoint.model.effects is None
    rows = plausible(checkpoint.encoding, 50, 0)
    old = loaded(format_2_repository, head).run(fed(rows), (metadata.MEAN, metadata.LOGIT_VARIANCE))
    with torch.no_grad():
        found = checkpoint.network.predict(encode(checkpoint, rows))
    np.testing.assert_allclose(found.logit_variance.numpy(), old[metadata.LOGIT_VARIANCE], 1e-4)
    np.testing.assert_allclose(found.mean().numpy(), old[metadata.MEAN], 1e-4)
    assert np.std(old[metadata.MEAN]) > 0.01


@pytest.mark.parametrize("kind", ["id", "bucket", "number"])
def test_weights_of_format_1_keep_their_columns(kind: str) -> None:
    """The first layer's weights of one feature beside another, in today's wider input vector."""
    features = [{"name": "a", "kind": kind, "embedding": 3}, {"name": "b", "kind": "id", "embedding": 2}]
    width = 1 if kind == "number" else 3
    weight = torch.arange(1.0, 1.0 + width + 2).repeat(4, 1)
    state = {"backbone.layers.0.weight": weight, "backbone.layers.0.v": weight[0]}
    widened = format_1._state(state, features, {"backbone": "sn", "hidden": [4]})["backbone.layers.0.weight"][0]
    own = 3 if kind == "id" else 3 + 1 + RAMP_WIDTH
    start = 3 if kind == "number" else 0
    assert widened[start : start + width].tolist() == weight[0, :width].tolist()
    assert widened[own:].tolist() == weight[0, width:].tolist()
    assert widened.count_nonzero() == width + 2


def test_every_model_of_a_repository_is_loaded(old_repository: Path) -> None:
    heads = {name: loaded(old_repository, name).metadata.head for name in repository.scan(old_repository)}
    assert heads == {"demo": "cr", "pooled": "pool", "quantiles": "qr"}
    assert loaded(old_repository, "demo").metadata.format == 1


def test_this_format_and_those_of_the_stored_files_are_read() -> None:
    """Those of fd7b8c1 have format 1, those of da77823 format 2."""
    assert set(READABLE) == {1, 2, FORMAT}


def test_what_an_older_format_lacks_takes_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "READABLE", {0: frozenset({"grid"}), **READABLE})
    props = {key: value for key, value in PROPS.items() if key != "ghostless.grid"}
    assert ModelMetadata.parse({**props, "ghostless.format": "0"}, "old").grid == ()
    with pytest.raises(InvalidModelError, match=r"lacks ghostless\.grid"):
        ModelMetadata.parse(props, "new")


@pytest.mark.parametrize(
    ("text", "cure"),
    [("99", "upgrade the server"), ("0", "export the model again"), ('"1"', "export"), ("true", "export")],
)
def test_other_formats_are_refused_with_what_to_do(text: str, cure: str) -> None:
    with pytest.raises(InvalidModelError, match=f"format {text}, this version reads .*{cure}"):
        ModelMetadata.parse({**PROPS, "ghostless.format": text}, "some.onnx")
