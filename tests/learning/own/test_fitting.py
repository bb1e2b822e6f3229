"""`ghostless fit`: a ranker from somebody else's code gets a head, and stays as it is."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from export import publish
from export.graph import Networks
from export.options import ExportOptions
from ghostless.contract import metadata, repository
from learning.checkpoint import Checkpoint
from learning.config import FROZEN, ModelConfig, TrainConfig
from learning.data.synthetic import SyntheticVideos
from learning.data.table import Table
from learning.errors import CheckpointError, RankerError
from learning.evaluation import evaluate
from learning.own import fitting
from learning.own.frozen import FrozenEncoding
from learning.schema import Feature, Schema
from learning.training import split
from serving.engines.embedded import load_model
from tests.support import torch_models as models
from tests.support.command_line import Ghostless

USERS, VIDEOS = 150, 60
UNKNOWN = {"user_id": USERS, "video_id": VIDEOS}
CONFIG = TrainConfig(steps=300, batch_rows=512, seed=0)


class Ranker(nn.Module):
    """Raw ids are rows of its tables; the last row of each is for unknown ids."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.videos = nn.Embedding(USERS + 1, 8), nn.Embedding(VIDEOS + 1, 8)
        self.hidden = nn.Sequential(nn.Linear(17, 32), nn.SiLU(), nn.Linear(32, 12), nn.SiLU())
        self.score = nn.Linear(12, 1)

    def forward(self, user_id: Tensor, video_id: Tensor, duration_ms: Tensor) -> tuple[Tensor, Tensor]:
        seconds = duration_ms.reshape(-1, 1) / 30_000.0
        hidden: Tensor = self.hidden(torch.cat([self.users(user_id), self.videos(video_id), seconds], -1))
        return hidden, self.score(hidden)


def views(rows: int, seed: int) -> Table:
    return SyntheticVideos(seed=0, users=USERS, items=VIDEOS).sample(rows, seed=seed)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker that was trained with squared error, by code that knows nothing of Ghostless."""
    torch.manual_seed(0)
    ranker, used = Ranker(), views(6000, seed=1)
    inputs = [torch.from_numpy(used.columns[name]) for name in ("user_id", "video_id", "duration_ms")]
    optimizer = torch.optim.Adam(ranker.parameters(), 5e-3)
    for step in range(150):
        some = torch.arange(step * 256, (step + 1) * 256) % used.rows
        loss = (
            ranker(*(column[some] for column in inputs))[1].squeeze(-1) - torch.from_numpy(used.target)[some]
        ).square()
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("ranker") / "ranker.onnx"
    names = ["user_id", "video_id", "duration_ms"]
    with warnings.catch_warnings():
        # The older exporter, as many rankers were written with it, is deprecated.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            ranker.eval(),
            tuple(column[:3] for column in inputs),
            path,
            dynamo=False,
            input_names=names,
            output_names=["hidden", "score"],
            dynamic_axes={name: {0: "n"} for name in (*names, "hidden", "score")},
            opset_version=17,
        )
    return path


@pytest.fixture(scope="module")
def fitted(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Table, Path]:
    """The checkpoint as it was loaded, its data, and its folder."""
    table, out = views(6000, seed=2), tmp_path_factory.mktemp("fit")
    ranker = fitting.load_ranker(file, "hidden", table.schema, UNKNOWN)
    model = ModelConfig(head="cr", bins=20, own=FROZEN, own_options=fitting.identity(ranker))
    fitting.trainer(ranker, table, "views", model, CONFIG, out).run()
    return Checkpoint.load(out), table, out


def test_the_features_are_the_rankers_standardised(file: Path, fitted: tuple[Checkpoint, Table, Path]) -> None:
    checkpoint, table, _ = fitted
    names = ("user_id", "video_id", "duration_ms")
    hidden = ort.InferenceSession(file).run(["hidden"], {name: table.columns[name] for name in names})[0]
    phi = checkpoint.encoding.encode(table)["ranker/features"]
    train = split(table, CONFIG).train
    assert np.abs(phi.mean(0)).max() < 0.1
    assert phi.std(0) == pytest.approx(1.0, abs=0.1)
    for column in range(12):
        assert np.corrcoef(phi[:, column], hidden[:, column])[0, 1] == pytest.approx(1.0, abs=1e-4)
    assert train.rows < table.rows


def test_the_prior_is_about_an_output_not_about_a_weight(fitted: tuple[Checkpoint, Table, Path]) -> None:
    assert fitted[0].model_config.prior_scale == 1.0
    assert fitted[0].model.head.posterior.tau == pytest.approx(12**-0.5)


def test_it_is_calibrated_and_better_than_the_marginal(fitted: tuple[Checkpoint, Table, Path]) -> None:
    checkpoint, table, _ = fitted
    test = split(table, CONFIG).test
    assert test is not None
    figures = evaluate(checkpoint, test).metrics()
    shares = np.histogram(table.target, np.linspace(0.0, 3.0, 11))[0] / table.rows
    assert figures.nll < -(shares * np.log(shares)).sum() - 0.05
    assert figures.coverage_90 == pytest.approx(0.9, abs=0.035)


@pytest.mark.usefixtures("few_rows")
def test_it_is_exported_with_the_ranker_and_answers_unknown_ids(
    fitted: tuple[Checkpoint, Table, Path], tmp_path: Path
) -> None:
    checkpoint, table, _ = fitted
    version, report = publish.export_model(Networks((checkpoint,)), "fit", tmp_path, ExportOptions())
    assert report.ok
    loaded = load_model(repository.find(tmp_path, "fit").model_file(version), "fit", version, (1, 3))
    row = {name: values[:1] for name, values in table.columns.items()}
    strange = {**row, "user_id": np.array([2**40])}
    known, unknown = (loaded.run(columns, (metadata.EPISTEMIC, metadata.UNKNOWN_IDS)) for columns in (row, strange))
    assert (known[metadata.UNKNOWN_IDS][0, 0], unknown[metadata.UNKNOWN_IDS][0, 0]) == (0.0, 1.0)
    assert unknown[metadata.EPISTEMIC] > known[metadata.EPISTEMIC]


def test_masked_ids_reach_the_ranker_as_unknown(fitted: tuple[Checkpoint, Table, Path]) -> None:
    checkpoint, table, _ = fitted
    some = table.take(slice(0, 5))
    encoding = checkpoint.encoding
    assert isinstance(encoding, FrozenEncoding)
    masked = encoding.encode(some, ["user_id"])
    meant = Table(some.schema, {**some.columns, "user_id": np.full(5, USERS)}, some.target)
    assert (masked["user_id"] == 0).all()
    assert np.array_equal(masked["ranker/features"], encoding.encode(meant)["ranker/features"])


def test_another_ranker_does_not_resume_the_run(
    file: Path, fitted: tuple[Checkpoint, Table, Path], tmp_path: Path
) -> None:
    _, table, _ = fitted
    for unknown in (UNKNOWN, {**UNKNOWN, "user_id": 0}):
        ranker = fitting.load_ranker(file, "hidden", table.schema, unknown)
        model = ModelConfig(head="cr", own=FROZEN, own_options=fitting.identity(ranker))
        trainer = fitting.trainer(ranker, table, "views", model, TrainConfig(steps=4, validations=4), tmp_path)
        if unknown is UNKNOWN:

            def stop(step: Any) -> None:
                if step.step == 3:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                trainer.run(stop)
        else:
            with pytest.raises(CheckpointError, match="unfinished run with other data or options"):
                trainer.run()


def test_ids_that_the_ranker_can_not_look_up_are_refused(file: Path) -> None:
    table = views(300, seed=3)
    ranker = fitting.load_ranker(file, "hidden", table.schema, {"user_id": USERS})
    with pytest.raises(RankerError, match=r"fails on ids of 'video_id'.*--unknown-id video_id=ID"):
        fitting.fit_encoding(ranker, table)


def test_memorised_rows_are_told_from_fresh_ones(fitted: tuple[Checkpoint, Table, Path]) -> None:
    checkpoint, table, _ = fitted
    test = split(table, CONFIG).test
    assert test is not None
    assert fitting.memorised(checkpoint, test, views(3000, seed=4)).note == ""
    # Rows whose outcome is the likeliest one, as a ranker has them that has learnt them by heart.
    judged = evaluate(checkpoint, test)
    likeliest = judged.edges[judged.masses.argmax(1)] + 0.5 * judged.edges[1]
    learnt = Table(test.schema, dict(next(test.batches(test.rows)).columns), likeliest)
    assert "has memorised its training rows" in fitting.memorised(checkpoint, test, learnt).note


def test_a_torch_export_program_is_read_like_an_onnx_file(tmp_path: Path) -> None:
    rows = torch.export.Dim("n", min=2)
    example = (torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(3))
    program = torch.export.export(Ranker().eval(), example, dynamic_shapes=({0: rows},) * 3)
    torch.export.save(program, tmp_path / "ranker.pt2")
    table = views(300, seed=3)
    ranker = fitting.load_ranker(tmp_path / "ranker.pt2", "0", table.schema, UNKNOWN)
    assert ranker(table.columns).shape == (300, 12)


@pytest.mark.usefixtures("few_rows")
def test_every_form_of_input(tmp_path: Path) -> None:
    """Strings, narrow integers of shape [n, 1], and two numbers as one input [n, 2]."""
    schema = Schema(
        (
            Feature("user", "id", "context", type="string"),
            Feature("category", "id", type="int64"),
            Feature("duration", "bucket", type="float32"),
            Feature("price", "number", type="float32"),
            Feature("hash", "id", type="int64"),
        ),
        models.TARGET,
    )
    table = models.random_table(schema, 800)
    users = sorted(set(table.columns["user"].tolist()))
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["user"],
            ["label"],
            domain="ai.onnx.ml",
            keys_strings=users,
            values_floats=np.linspace(-1.0, 1.0, len(users)).tolist(),
            default_float=9.0,
        ),
        helper.make_node("Unsqueeze", ["label", "axis"], ["column"]),
        helper.make_node("Cast", ["category"], ["place"], to=TensorProto.FLOAT),
        helper.make_node("Tanh", ["place"], ["bounded"]),
        helper.make_node("Tanh", ["numbers"], ["squashed"]),
        helper.make_node("Concat", ["column", "bounded", "squashed"], ["hidden"], axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("user", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("category", TensorProto.INT32, ["n", 1]),
        helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["n", 2]),
    ]
    output = helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["n", 4])
    axis = numpy_helper.from_array(np.array([1]), "axis")
    graph = helper.make_graph(nodes, "ranker", inputs, [output], [axis])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "ranker.onnx")
    ranker = fitting.load_ranker(tmp_path / "ranker.onnx", "hidden", schema, {"user": users[3], "category": 4})
    model = ModelConfig(head="qr", levels=20, groups=5, own=FROZEN, own_options=fitting.identity(ranker))
    checkpoint = fitting.trainer(ranker, table, "views", model, TrainConfig(steps=20), tmp_path / "run").run()
    unknown = Table(schema, {**table.columns, "user": np.full(800, "nobody")}, table.target)
    assert isinstance(checkpoint.encoding, FrozenEncoding)
    column = checkpoint.encoding.encode(unknown)["ranker/features"][:, 0]
    # The user that stands for unknown ones, not the ranker's own default of 9.
    expected = (np.linspace(-1.0, 1.0, len(users))[3] - checkpoint.encoding.feature_centres[0]) / (
        checkpoint.encoding.feature_spreads[0]
    )
    assert column == pytest.approx(expected, abs=1e-4)
    _, report = publish.export_model(
        Networks((Checkpoint.load(tmp_path / "run"),)), "fit", tmp_path / "m", ExportOptions()
    )
    assert report.ok


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (
            Feature("user_id", "id", "context", type="string"),
            "input 'user_id' is int64, but the schema's feature is string",
        ),
        (Feature("member", "id", "context", type="int64"), "input 'user_id' is not in the schema"),
    ],
)
def test_inputs_that_do_not_match_the_schema(file: Path, feature: Feature, message: str) -> None:
    schema = views(10, seed=0).schema
    with pytest.raises(RankerError, match=message):
        fitting.load_ranker(file, "hidden", replace(schema, features=(feature, *schema.features[1:])), {})
    more = (*schema.features, Feature("age", "number", type="float32"))
    with pytest.raises(RankerError, match="has no input for feature 'age'"):
        fitting.load_ranker(file, "hidden", replace(schema, features=more), {})


class TestCommand:
    def test_fit_writes_a_run_that_evaluate_reads(self, ghostless: Ghostless, file: Path, tmp_path: Path) -> None:
        table = views(3000, seed=5)
        columns = {**table.columns, "watch_ratio": table.target}
        pq.write_table(pa.table(dict(columns)), tmp_path / "views.parquet")
        (tmp_path / "schema.json").write_text(json.dumps(table.schema.to_dict()))
        data = ("--data", tmp_path / "views.parquet", "--schema", tmp_path / "schema.json")
        words = ("--backbone", file, "--features-from", "hidden", "--steps", "20", "--bins", "12")
        ids = ("--unknown-id", "user_id=150", "--unknown-id", "video_id=60", "--effects", "user_id,video_id")
        used = ("--trained-on", tmp_path / "views.parquet")
        status, out, err = ghostless("fit", *data, *words, *ids, *used, "--out", tmp_path / "run", "--json")
        assert status == 0, err
        figures = json.loads(out)
        assert figures["train_rows"] < 3000
        assert {figure["feature"] for figure in figures["pairs"]["figures"]} == {"user_id", "video_id"}
        # The schema is that of the run.
        status, out, err = ghostless("evaluate", tmp_path / "run", "--json")
        assert status == 0, err
        assert json.loads(out)["nll"] == pytest.approx(figures["nll"], rel=1e-6)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--features-from", "top"), "no output 'top'; it has hidden, score"),
            (("--features-from", "hidden", "--effects", "user_id"), "leaves out the id 'video_id'"),
            (("--features-from", "hidden", "--effects", "movie"), "names 'movie'"),
            (("--features-from", "hidden", "--unknown-id", "user_id"), "expected FEATURE=ID"),
            (("--features-from", "hidden", "--unknown-id", "user_id=x"), "is int64"),
        ],
    )
    def test_wrong_options(self, ghostless: Ghostless, file: Path, words: tuple[str, ...], message: str) -> None:
        status, _, err = ghostless("fit", "--backbone", file, "--data", "synthetic:300", *words)
        assert status == 1
        assert message in " ".join(err.split())
