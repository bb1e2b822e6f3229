"""`ghostless export` as a user meets it: what it prints, what it leaves, and one line for every mistake."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from ghostless.contract import metadata, repository
from ghostless.contract.errors import InvalidModelError
from learning.checkpoint import FILE
from learning.config import TrainConfig
from learning.data.load import load
from learning.training import Trainer
from serving.engines.embedded import load_model
from tests.support import torch_models as models
from tests.support.command_line import Ghostless

pytestmark = pytest.mark.usefixtures("few_rows")


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that was really trained, in small, as `ghostless train` leaves it."""
    out = tmp_path_factory.mktemp("runs") / "qr"
    Trainer(load("synthetic:4000"), "synthetic:4000", models.config(), TrainConfig(epochs=1), out).run()
    return out


@pytest.fixture
def ghostless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    return Ghostless(monkeypatch, capsys, before=["export"])


def test_the_installed_command_exports_a_trained_run(run_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ghostless", "export", str(run_dir), "--name", "demo"]
    done = subprocess.run(
        [*command, "--repository", str(tmp_path), "--json"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["model"], report["version"], report["ok"], report["method"]) == ("demo", 1, True, "vbll")
    # At its full length: nothing shortens the verification here.
    assert any("4000 posterior draws" in check["name"] for check in report["checks"])
    loaded = load_model(repository.find(tmp_path, "demo").model_file(1), "demo", 1, (1, 7))
    assert loaded.metadata.calibration["train_rows"] == 2880


def test_it_says_where_the_model_is_and_how_exact(ghostless: Ghostless, run_dir: Path, tmp_path: Path) -> None:
    status, out, _ = ghostless(run_dir, "--name", "demo", "--repository", tmp_path)
    assert status == 0
    plain = " ".join(out.split())
    assert "checks passed, largest relative error against torch" in plain
    assert (tmp_path / "demo" / "1" / "model.onnx").is_file()


def test_choices_reach_the_graph(ghostless: Ghostless, run_dir: Path, tmp_path: Path) -> None:
    status, _, err = ghostless(
        *(run_dir, "--name", "demo", "--repository", tmp_path, "--levels", "0.2,0.8", "--edges", "0,1.2,3"),
        *("--grid", "0:3:7", "--outputs", "mean,quantiles,bins,density"),
    )
    assert status == 0, err
    loaded = load_model(tmp_path / "demo" / "1" / "model.onnx", "demo", 1, (1,))
    assert loaded.metadata.levels == (0.2, 0.8)
    assert loaded.metadata.edges == (0.0, 1.2, 3.0)
    assert loaded.metadata.grid == (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    assert set(loaded.outputs) == {metadata.MEAN, metadata.QUANTILES, metadata.BINS, metadata.DENSITY}


def test_several_runs_make_an_ensemble_and_masks_mc_dropout(ghostless: Ghostless, tmp_path: Path) -> None:
    for seed in (0, 1):
        models.video_checkpoint(seed, method="deterministic", dropout=0.2).save(tmp_path / f"member{seed}")
    root = tmp_path / "models"
    members = [tmp_path / "member0", tmp_path / "member1"]
    status, out, err = ghostless(*members, "--name", "five", "--repository", root, "--json")
    assert (status, json.loads(out)["method"]) == (0, "ensemble"), err
    status, out, err = ghostless(members[0], "--name", "mc", "--mc-dropout", 3, "--repository", root, "--json")
    assert (status, json.loads(out)["method"]) == (0, "mc-dropout"), err
    arguments = (members[0], "--name", "fixed", "--mc-dropout-fixed", 3, "--repository", root, "--json")
    status, out, err = ghostless(*arguments)
    assert (status, json.loads(out)["method"]) == (0, "mc-dropout-fixed"), err
    status, _, err = ghostless(*arguments, "--mc-dropout", 3)
    assert (status, err) == (
        1,
        "error: --mc-dropout and --mc-dropout-fixed exclude each other; give only one\n",
    )
    status, _, err = ghostless(*members, "--name", "both", "--mc-dropout", 3, "--repository", root)
    assert (status, err) == (
        1,
        "error: MC-dropout exports exactly one run; an ensemble of several runs cannot use it\n",
    )


def test_skip_existing_does_nothing_where_the_model_is(ghostless: Ghostless, run_dir: Path, tmp_path: Path) -> None:
    arguments = (run_dir, "--name", "demo", "--repository", tmp_path, "--skip-existing")
    assert ghostless(*arguments)[0] == 0
    status, out, _ = ghostless(*arguments)
    assert (status, "nothing to do" in out) == (0, True)
    assert repository.find(tmp_path, "demo").versions == (1,)


def test_no_promote_keeps_the_old_version(ghostless: Ghostless, run_dir: Path, tmp_path: Path) -> None:
    ghostless(run_dir, "--name", "demo", "--repository", tmp_path)
    assert ghostless(run_dir, "--name", "demo", "--repository", tmp_path, "--no-promote")[0] == 0
    kept = repository.find(tmp_path, "demo")
    assert (kept.versions, kept.in_service) == ((1, 2), 1)


def _truncate(run: Path) -> None:
    content = (run / FILE).read_bytes()
    (run / FILE).write_bytes(content[: len(content) // 2])


def _remove(run: Path) -> None:
    shutil.rmtree(run)


def _empty(run: Path) -> None:
    (run / FILE).write_bytes(b"")


def _text(run: Path) -> None:
    (run / FILE).write_text("user_id,video_id\n1,2\n")


def _foreign(run: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, run / FILE)


def _not_a_dict(run: Path) -> None:
    torch.save(torch.zeros(3), run / FILE)


def _other_shape(run: Path) -> None:
    content = torch.load(run / FILE, weights_only=True)
    content["hidden"] = [64, 8]
    torch.save(content, run / FILE)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_remove, "no such checkpoint; train one with `ghostless train --out`"),
        (_truncate, "damaged or not a checkpoint"),
        (_empty, "damaged or not a checkpoint"),
        (_text, "damaged or not a checkpoint"),
        (_foreign, "format None, this version reads 1 and 2 and 3; train again"),
        (_not_a_dict, "not a Ghostless checkpoint but a Tensor"),
        (_other_shape, "not a checkpoint of this version"),
    ],
)
def test_a_wrong_checkpoint_is_one_line_and_changes_nothing(
    ghostless: Ghostless, run_dir: Path, tmp_path: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    run, root = tmp_path / "run", tmp_path / "models"
    shutil.copytree(run_dir, run)
    damage(run)
    status, out, err = ghostless(run, "--name", "demo", "--repository", root)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert complaint in err
    assert err.count("\n") == 1
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--outputs", "mean,median"), "this qr model has no output median; it has mean"),
        (("--levels", "0.1,high"), "--levels: expected numbers separated by commas, got '0.1,high'"),
        (("--levels", "0.9,0.1"), "levels must increase strictly inside (0, 1)"),
        (("--edges", "0,1"), "edges must increase strictly from 0 to 3"),
        (("--grid", "3:0:10"), "--grid: expected LOW:HIGH:COUNT with LOW < HIGH and COUNT from 2 to 10000"),
        (("--grid", "0:3:inf"), "--grid: expected LOW:HIGH:COUNT with LOW < HIGH and COUNT from 2 to 10000"),
        (("--grid", "0:3:"), "--grid: expected"),
        (("--grid", "0:x:3"), "--grid: expected numbers"),
        (("--mc-dropout", "3"), "MC-dropout needs a deterministic network"),
        (("--cuda-graphs",), "they need TensorRT"),
        (("--name", "a/b"), "'a/b' is not a valid model name"),
    ],
)
def test_a_wrong_option_is_one_line_and_changes_nothing(
    ghostless: Ghostless, run_dir: Path, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    status, out, err = ghostless(run_dir, "--name", "demo", "--repository", tmp_path / "models", *arguments)
    assert (status, out) == (1, "")
    assert complaint in err
    assert err.count("\n") == 1
    assert not (tmp_path / "models").exists()


def _cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[: len(content) // 8] = bytes(byte ^ 0xFF for byte in content[: len(content) // 8])
    file.write_bytes(bytes(content))


def _another_programs(file: Path) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "foreign",
        *([onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])] for name in ("x", "y")),
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]), file)


def _stripped(file: Path) -> None:
    model = onnx.load(file)
    del model.metadata_props[:]
    onnx.save(model, file)


def _without_a_feature(file: Path) -> None:
    model = onnx.load(file)
    props = {prop.key: prop.value for prop in model.metadata_props}
    props["ghostless.features"] = json.dumps(json.loads(props["ghostless.features"])[:-1])
    onnx.helper.set_model_props(model, props)
    onnx.save(model, file)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.serve(models.alone(models.video_checkpoint()), tmp_path_factory.mktemp("exported")).file


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_cut, "ONNX Runtime can't load it"),
        (_flipped, "ONNX Runtime can't load it"),
        (lambda file: file.write_bytes(b""), "ONNX Runtime can't load it"),
        (lambda file: file.write_text("not a model"), "ONNX Runtime can't load it"),
        (_another_programs, "not a Ghostless model, its metadata lacks ghostless.name"),
        (_stripped, "not a Ghostless model, its metadata lacks ghostless.name"),
        (_without_a_feature, "its metadata declares"),
    ],
)
def test_a_damaged_or_foreign_graph_in_a_repository_is_refused_in_one_line(
    exported: Path, tmp_path: Path, damage: Callable[[Path], object], complaint: str
) -> None:
    file = tmp_path / "demo" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    shutil.copyfile(exported, file)
    load_model(file, "demo", 1, (1,))
    damage(file)
    with pytest.raises(InvalidModelError) as refused:
        load_model(file, "demo", 1, (1,))
    message = str(refused.value)
    assert complaint in message
    assert str(file) in message
    assert len(message.strip().splitlines()) == 1


def test_a_missing_feature_is_named(exported: Path) -> None:
    loaded = load_model(exported, "demo", 1, (1,))
    with pytest.raises(ValueError, match="duration_ms"):
        loaded.run({"user_id": np.zeros(1, np.int64), "video_id": np.zeros(1, np.int64)}, ("mean",))
