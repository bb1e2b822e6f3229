"""`ghostless outcomes` through its own front door, against a real server."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from ghostless.commands.main import main
from serving.config import ServeConfig
from serving.server import embedded_engine
from tests.support.observed import Observed, observed
from tests.support.onnx_models import write_version
from tests.support.running import predict_request

Ghostless = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    root = tmp_path_factory.mktemp("models")
    write_version(root, 1)
    engine = embedded_engine(ServeConfig(repository=root))
    with observed(engine) as running:
        yield running
    engine.stop()


@pytest.fixture
def outcomes(server: Observed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ghostless:
    def run(*arguments: object) -> tuple[int, str, str]:
        words = ["ghostless", "outcomes", *map(str, arguments), "--address", server.address]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_a_csv_is_told_and_summed_up(server: Observed, outcomes: Ghostless, tmp_path: Path) -> None:
    # An id that looks like a number must stay the text it is.
    server.stub.Predict(predict_request(3, request_id="007"))
    file = tmp_path / "outcomes.csv"
    file.write_text("request_id,row,actual,note\n007,0,1.5,x\n007,1,2,\n007,1,2,\n8,0,1,\n007,5,1,\n")
    status, out, err = outcomes(file, "--batch", 2)
    assert (status, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["joined", "2"],
        ["late", "0"],
        ["unknown", "1"],
        ["duplicate", "1"],
        ["invalid", "1"],
        ["skipped", "0"],
    ]


def test_parquet_in_and_json_out(server: Observed, outcomes: Ghostless, tmp_path: Path) -> None:
    server.stub.Predict(predict_request(3, request_id="a"))
    table = pa.table({"actual": [1.0, float("nan")], "row": pa.array([0, 1], pa.uint32()), "request_id": ["a", "a"]})
    pyarrow.parquet.write_table(table, tmp_path / "outcomes.parquet")
    status, out, _ = outcomes(tmp_path / "outcomes.parquet", "--json")
    assert status == 0
    assert json.loads(out) == {"joined": 1, "late": 0, "unknown": 0, "duplicate": 0, "invalid": 1, "skipped": 0}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "request_id,actual\na,1\n", "has no column row; expected request_id, row and actual"),
        ("a.csv", "request_id,row,actual\na,0,much\n", "a.csv: "),
        ("a.csv", "request_id,row,actual\na,,1\n", "column 'row' has 1 missing values"),
        ("a.csv", "request_id,row,actual\na,-1,1\n", "can't be sent"),
        ("a.txt", "", "expected a .csv or .parquet file"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_line(
    outcomes: Ghostless, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    status, out, err = outcomes(tmp_path / name)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err
