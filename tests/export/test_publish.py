"""From a checkpoint into the repository: all of it, or nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from export import options, publish, reference, rows, verification
from export.errors import OptionError, VerificationError
from export.graph import Networks
from export.options import ExportOptions
from export.verification import relative_error
from ghostless.contract import digests, metadata, repository
from ghostless.contract.errors import InvalidModelError, RepositoryError
from ghostless.contract.metadata import ModelMetadata
from learning.checkpoint import Checkpoint
from learning.data.table import Table
from learning.schema import Feature, Schema
from serving.engines.embedded import load_model
from tests.support import torch_models as models

pytestmark = pytest.mark.usefixtures("few_rows")


@pytest.fixture(scope="module")
def networks() -> Networks:
    return models.alone(models.video_checkpoint(levels=20, groups=10))


def export(networks: Networks, root: Path, name: str = "demo", promote: bool = True, **options: Any) -> int:
    version, report = publish.export_model(networks, name, root, ExportOptions(**options), promote)
    assert report.ok
    return version


def everything(root: Path) -> dict[str, bytes | None]:
    """Every path below `root` with its content."""
    found = root.rglob("*")
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in found}


def test_an_export_leaves_the_graph_its_report_and_tritons_files(networks: Networks, tmp_path: Path) -> None:
    assert export(networks, tmp_path) == 1
    beside = {path.name for path in (tmp_path / "demo" / "1").iterdir()}
    assert beside == {"model.onnx", "model.py", "report.json", "report.md", "SHA256SUMS"}
    assert digests.verify(tmp_path / "demo" / "1")
    report = json.loads((tmp_path / "demo" / "1" / "report.json").read_text())
    assert report["ok"] is True
    assert report["model"] == "demo"
    assert (report["method"], report["precision"]) == ("vbll", "fp32")
    assert report["bytes"] == (tmp_path / "demo" / "1" / "model.onnx").stat().st_size
    assert report["nodes"] == len(onnx.load(tmp_path / "demo" / "1" / "model.onnx").graph.node)
    assert {"name", "value", "bound", "ok"} == set(report["checks"][0])
    assert "| epistemic: against torch, extreme rows |" in (tmp_path / "demo" / "1" / "report.md").read_text()
    message = text_format.Parse((tmp_path / "demo" / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
    assert (message.name, message.backend) == ("demo", "onnxruntime")
    assert not list(tmp_path.rglob(".staging-*"))


def test_metadata_is_whole_and_reads_back(networks: Networks, tmp_path: Path) -> None:
    export(networks, tmp_path)
    props = {prop.key: prop.value for prop in onnx.load(tmp_path / "demo" / "1" / "model.onnx").metadata_props}
    assert set(props) == {f"ghostless.{name}" for name in ModelMetadata.__dataclass_fields__}
    described = ModelMetadata.parse(props, "demo")
    checkpoint = networks.first
    assert (described.name, described.head, described.method) == ("demo", "qr", "vbll")
    assert [(f.name, f.type, f.role) for f in described.features] == [
        ("user_id", "int64", "context"),
        ("video_id", "int64", "candidate"),
        ("duration_ms", "float32", "candidate"),
    ]
    assert described.features[0].vocabulary == len(checkpoint.encoding.vocabularies["user_id"])
    frequent = checkpoint.encoding.vocabularies["user_id"][checkpoint.encoding.counts["user_id"].argmax()]
    assert described.features[0].examples[0] == frequent
    assert described.features[2].vocabulary == 0
    assert (described.target.name, described.target.low, described.target.high) == ("watch_ratio", 0.0, 3.0)
    assert described.levels[0] == 0.05
    assert described.format == 3
    assert 0.9 in described.edges
    assert described.knots == tuple(float(str(knot)) for knot in checkpoint.model.head.knots.numpy())
    assert set(described.edges) <= set(described.knots)
    assert described.calibration == checkpoint.metrics
    assert described.unknown_ids == ("user_id", "video_id")
    low, high = described.ranges["duration_ms"]
    knots = checkpoint.encoding.knots["duration_ms"]
    assert (np.float32(low), np.float32(high)) == (knots[0], knots[-1])
    assert described.data_fingerprint == checkpoint.fingerprint
    assert {"ghostless", "torch", "onnx", "onnxruntime", "numpy", "python"} <= set(described.tools)
    assert described.created.endswith("+00:00")


def test_a_second_export_is_the_next_version_and_serves(networks: Networks, tmp_path: Path) -> None:
    assert [export(networks, tmp_path), export(networks, tmp_path)] == [1, 2]
    assert repository.find(tmp_path, "demo").in_service == 2


def test_without_promotion_the_old_version_stays_in_service(networks: Networks, tmp_path: Path) -> None:
    export(networks, tmp_path)
    assert export(networks, tmp_path, promote=False) == 2
    entry = repository.find(tmp_path, "demo")
    assert (entry.versions, entry.in_service) == ((1, 2), 1)


def fail_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verification.TOLERANCE, "fp32", 1e-12)


@pytest.mark.parametrize("there_before", [True, False])
def test_a_failing_verification_leaves_the_repository_as_it_was(
    networks: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_before: bool
) -> None:
    root = tmp_path / "models"
    export(networks, root, "other")
    if there_before:
        export(networks, root)
    before = everything(root)
    fail_verification(monkeypatch)
    with pytest.raises(VerificationError, match=r"demo: the graph does not answer .* is .*, allowed 1e-12"):
        export(networks, root)
    assert everything(root) == before


def test_a_failing_first_export_leaves_no_repository(
    networks: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_verification(monkeypatch)
    with pytest.raises(VerificationError):
        export(networks, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_wrong_options_leave_the_repository_as_it_was(networks: Networks, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        export(networks, tmp_path, levels=(2.0,))
    with pytest.raises(RepositoryError, match="is not a valid model name"):
        export(networks, tmp_path, name="../elsewhere")
    assert everything(tmp_path) == {}


def test_large_tables_go_to_a_file_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "EXTERNAL_BYTES", 100_000)
    schema = Schema((Feature("user_id", "id", embedding=24), *models.EVERY_KIND.features), models.TARGET)
    table = models.random_table(schema, 12_000)
    crowd = Table(schema, {**table.columns, "user_id": np.arange(12_000)}, table.target)
    checkpoint = models.shaken(schema, models.config(), table=crowd)
    networks = models.alone(checkpoint)
    version = export(networks, tmp_path)
    directory = tmp_path / "demo" / str(version)
    assert (directory / publish.EXTERNAL_FILE).stat().st_size > 12_000 * 24 * 4
    assert (directory / "model.onnx").stat().st_size < 300_000
    # Loaded from where the rename put it, not from the staging directory it was verified in.
    loaded = load_model(directory / "model.onnx", "demo", version, (1,))
    columns = rows.plausible(checkpoint.encoding, 50, 0)
    layout = options.resolve(ExportOptions(), checkpoint)
    expected = reference.answer(networks, columns, layout)
    got = loaded.run(rows.fed(columns), (metadata.MEAN, metadata.EPISTEMIC))
    for name, values in got.items():
        assert relative_error(values, expected[name]) <= 1e-4
    (directory / publish.EXTERNAL_FILE).unlink()
    with pytest.raises(InvalidModelError, match=r"model\.onnx\.data.*can't be read"):
        load_model(directory / "model.onnx", "demo", version, (1,))


@pytest.mark.parametrize("head", ["qr", "cr"])
def test_half_precision_is_that_of_the_hidden_layers(head: str, tmp_path: Path) -> None:
    networks = models.alone(models.shaken(models.EVERY_KIND, models.config(head=head)))
    export(networks, tmp_path, precision="fp16")
    model = onnx.load(tmp_path / "demo" / "1" / "model.onnx")
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds["layer0/weight"] == kinds["layer1/weight"] == onnx.TensorProto.FLOAT16
    beside = ("category/table", "cross/gate/weight", "last/own", "last/carried/weight")
    assert {kinds[name] for name in beside} == {onnx.TensorProto.FLOAT}
    assert {output.type.tensor_type.elem_type for output in model.graph.output} == {onnx.TensorProto.FLOAT}
    report = json.loads((tmp_path / "demo" / "1" / "report.json").read_text())
    assert report["precision"] == "fp16"
    assert [check["ok"] for check in report["checks"] if check["name"].startswith("fp16: largest")] == [True, True]


def scanned(checkpoint: Checkpoint) -> dict[str, bool]:
    checks = publish.overflow_scan(models.alone(checkpoint))
    return {check.name.split()[2]: check.ok for check in checks}


def test_the_overflow_scan_passes_a_usual_network() -> None:
    assert scanned(models.shaken()) == {"weight": True, "activation": True}


@pytest.mark.parametrize("where", ["bias", "table"])
def test_the_overflow_scan_finds_a_weight_that_float16_has_no_number_for(where: str, tmp_path: Path) -> None:
    checkpoint = models.shaken()
    layer = checkpoint.model.backbone.layers[1]
    # The last id of the vocabulary, which a sample of rows may miss.
    weight = layer.get_parameter("bias")[0:1] if where == "bias" else checkpoint.model.towers.table("hash")[-1]
    with torch.no_grad():
        weight.fill_(1e5)
    assert not scanned(checkpoint)["weight"]
    with pytest.raises(VerificationError, match=r"float16 can't hold it: fp16: largest weight .*; export it as fp32"):
        export(models.alone(checkpoint), tmp_path, precision="fp16")
    assert everything(tmp_path) == {}


def test_the_overflow_scan_follows_a_residual_network() -> None:
    """Branches add up: each layer is small, their sum is not."""
    checkpoint = models.shaken(models.EVERY_KIND, models.config(backbone="spectral-residual", hidden=(8,) * 5))
    with torch.no_grad():
        for layer in checkpoint.model.backbone.layers:
            layer.get_parameter("weight").mul_(1e-6)
            layer.get_parameter("bias").fill_(1.5e4)
    assert scanned(checkpoint) == {"weight": True, "activation": False}


def test_the_overflow_scan_looks_at_weights_as_they_are_served() -> None:
    """Spectral norm brings a large raw weight down before it is written."""
    checkpoint = models.shaken(models.EVERY_KIND, models.config(backbone="sn+cross"))
    with torch.no_grad():
        checkpoint.model.backbone.layers[1].get_parameter("weight").mul_(1e6)
    assert scanned(checkpoint) == {"weight": True, "activation": True}
