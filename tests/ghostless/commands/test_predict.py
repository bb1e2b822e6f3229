"""`ghostless predict` through its own front door, against a server on a real socket."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ghostless.commands.main import main
from ghostless.v1 import prediction_pb2 as pb
from tests.support.scripted_server import ScriptedServer, scripted_server

REQUEST = json.dumps(
    {"context": {"user_id": 7, "hour": 12}, "candidates": {"video_id": [3, 1, 2], "duration": [1, 3, 2]}}
)
Ghostless = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def predict(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    def run(*arguments: str) -> tuple[int, str, str]:
        server.servicer.requests.clear()
        monkeypatch.setattr(sys, "argv", ["ghostless", "predict", "--address", server.address, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_the_table_is_ordered_by_rank_and_shows_spread(predict: Ghostless) -> None:
    status, out, err = predict("--request", REQUEST, "--thresholds", "0.5,1.5")
    assert (status, err) == (0, "")
    title, above, heading, *rows = out.splitlines()
    assert title.strip() == "demo version 3: watch_ratio (ratio), 3 candidates"
    assert above.split() == ["aleatoric", "epistemic"]
    expected = ["rank", "video_id", "duration", "mean", "10%", "50%", "90%", "sd", "sd", "P(>0.5)", "P(>1.5)"]
    assert heading.split() == expected
    cells = [row.split() for row in rows]
    assert [row[:3] for row in cells] == [["1", "1", "3"], ["2", "2", "2"], ["3", "3", "1"]]
    assert cells[0][3:] == ["10", "9", "10", "11", "4.472", "5.477", "10.5", "11.5"]


def test_a_narrow_terminal_cuts_nothing(predict: Ghostless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    _, out, _ = predict("--request", REQUEST)
    assert "…" not in out
    assert "4.472" in out


def test_json_numbers_go_to_the_features_own_type(predict: Ghostless, server: ScriptedServer) -> None:
    predict("--request", REQUEST)
    (request,) = server.servicer.requests
    assert list(request.context["hour"].floats.values) == [12.0]
    assert list(request.candidates["duration"].floats.values) == [1.0, 3.0, 2.0]
    assert list(request.candidates["video_id"].int64s.values) == [3, 1, 2]


def test_options_reach_the_server(predict: Ghostless, server: ScriptedServer) -> None:
    predict("--request", REQUEST, "--levels", "0.2,0.8", "--score", "ucb:1.5", "--top-k", "2", "--model", "demo")
    (request,) = server.servicer.requests
    np.testing.assert_allclose(request.quantile_levels, [0.2, 0.8], rtol=1e-6)
    assert (request.scoring.ucb.kappa, request.top_k, request.model, request.version) == (1.5, 2, "demo", 3)


def test_outputs_are_requested_by_name(predict: Ghostless, server: ScriptedServer) -> None:
    _, out, _ = predict("--request", REQUEST, "--outputs", "mean, emg_density", "--levels", "", "--format", "json")
    (request,) = server.servicer.requests
    assert list(request.outputs) == [pb.OUTPUT_MEAN, pb.OUTPUT_EMG_DENSITY]
    assert json.loads(out)["emg_density"] == [[152.0] * 2, [190.0] * 2, [171.0] * 2]


def test_json_out_is_complete_and_short(predict: Ghostless, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(REQUEST)
    status, out, _ = predict("--request", f"@{tmp_path / 'request.json'}", "--format", "json", "--top-k", "1")
    answer = json.loads(out)
    assert status == 0
    assert (answer["model"], answer["version"], answer["rows"], answer["ranking"]) == ("demo", 3, 3, [1])
    assert answer["mean"] == [8.0, 10.0, 9.0]
    assert answer["bins"] == [[0.1, 0.2, 0.3, 0.4]] * 3
    assert "exceedance" not in answer


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_of_a_file_are_candidates(predict: Ghostless, server: ScriptedServer, tmp_path: Path, suffix: str) -> None:
    table = pa.table(
        {"video_id": [3, 1], "duration": [1, 3], "user_id": [7, 7], "label": [0.5, 0.1], "note": ["a", "b"]}
    )
    path = tmp_path / f"candidates.{suffix}"
    (pyarrow.csv.write_csv if suffix == "csv" else pyarrow.parquet.write_table)(table, path)
    status, _, err = predict("--input", str(path), "--context", '{"hour": 9}')
    assert (status, err) == (0, "")
    (request,) = server.servicer.requests
    assert sorted(request.candidates) == ["duration", "video_id"]
    assert list(request.context["user_id"].int64s.values) == [7]
    assert list(request.context["hour"].floats.values) == [9.0]
    assert list(request.candidates["duration"].floats.values) == [1.0, 3.0]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--request", "{"], "--request is not JSON"),
        (["--request", "[1]"], "--request must be a JSON object, not list"),
        (["--request", '{"user": 1}'], "has user; expected an object with 'context' and 'candidates'"),
        (["--request", '{"context": 3}'], "'context' must be an object"),
        (["--request", '{"context": {"age": 3}}'], "no feature 'age'; it has context user_id (int64), hour (float32)"),
        (["--request", '{"context": {"user_id": "x"}}'], "feature 'user_id' expects int64"),
        (["--request", '{"candidates": {"video_id": [1.5]}}'], "feature 'video_id' expects int64"),
        (["--request", '{"candidates": {"video_id": [1, null]}}'], "'video_id' has 1 missing values"),
        (["--request", "@nowhere.json"], "can't read nowhere.json: No such file"),
        (["--request", REQUEST, "--context", "{}"], "--context requires --input"),
        ([], "either --request or --input"),
        (["--request", REQUEST, "--score", "best"], "'best' is not one of: mean, quantile:LEVEL"),
        (["--request", REQUEST, "--levels", "a"], "--levels is 'a'"),
        (["--request", REQUEST, "--outputs", "mean,emg"], "output 'emg' is not one of: mean, quantiles"),
        (["--request", REQUEST, "--model", "nope"], "NOT_FOUND: model 'nope' is not served"),
        (["--input", "rows.txt"], "rows.txt: expected a .csv or .parquet"),
        (["--input", "nowhere.csv"], "can't read nowhere.csv"),
    ],
)
def test_mistakes_are_one_clear_line(predict: Ghostless, arguments: list[str], complaint: str) -> None:
    status, out, err = predict(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("video_id,duration,user_id\n1,2,7\n2,3,8\n", "context feature 'user_id' has 2 different values"),
        ("video_id,duration\nx,2\n", "feature 'video_id' expects int64"),
        ("video_id,duration\n1,\n", "'duration' has 1 missing values"),
    ],
)
def test_unfit_files_are_told(predict: Ghostless, tmp_path: Path, content: str, complaint: str) -> None:
    status, _, err = predict("--input", write(tmp_path / "rows.csv", content), "--context", '{"hour": 9}')
    assert status == 1
    assert complaint in err


def test_the_picture_is_drawn(predict: Ghostless, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "distributions.png"
    status, _, err = predict("--request", REQUEST, "--plot", str(picture))
    assert (status, err) == (0, f"drawn: {picture}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(
    predict: Ghostless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, _, err = predict("--request", REQUEST, "--plot", str(tmp_path / "x.png"))
    assert status == 1
    assert "pip install matplotlib" in err
