"""Checkpoints and a repository of fd7b8c1 are read: they predict, are exported again and are served."""

from pathlib import Path

import numpy as np
import pytest

from export.cli import export
from export.rows import fed, plausible
from ghostless.contract import metadata, repository
from ghostless.contract.errors import InvalidModelError
from ghostless.contract.metadata import FORMAT, READABLE, ModelMetadata
from learning.checkpoint import Checkpoint
from learning.data.load import load
from learning.evaluation import evaluate
from learning.trained import TrainedModel
from serving.engines.session import LoadedModel, load_model
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
@pytest.mark.parametrize(("run", "name"), [("qr", "quantiles"), (".", "pooled"), ("cr", "")])
def test_a_checkpoint_is_exported_to_the_same_graph(
    old_checkpoints: Path, old_repository: Path, tmp_path: Path, run: str, name: str
) -> None:
    """Equal to fd7b8c1's own export of it, where that is stored, but for rounding in another graph."""
    export([old_checkpoints / run], name=name or "again", root=tmp_path)
    again = loaded(tmp_path, name or "again")
    assert again.metadata.format == FORMAT
    if not name:
        return
    before = loaded(old_repository, name)
    feed = fed(plausible(TrainedModel.load(old_checkpoints / run).first.encoding, 50, 0))
    outputs = (metadata.MEAN, metadata.QUANTILES, metadata.ALEATORIC, metadata.EPISTEMIC)
    old, new = before.run(feed, outputs), again.run(feed, outputs)
    for output in outputs:
        np.testing.assert_allclose(new[output], old[output], 1e-4, 1e-5, err_msg=output)


def test_every_model_of_a_repository_is_loaded(old_repository: Path) -> None:
    heads = {name: loaded(old_repository, name).metadata.head for name in repository.scan(old_repository)}
    assert heads == {"demo": "cr", "pooled": "pool", "quantiles": "qr"}
    assert loaded(old_repository, "demo").metadata.format == 1


def test_this_format_and_the_one_before_are_read() -> None:
    assert FORMAT in READABLE
    assert len(READABLE) <= 2
    # The files of fd7b8c1 have format 1.
    assert FORMAT > 2 or 1 in READABLE


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
