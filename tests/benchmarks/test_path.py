"""`ghostless bench path` counts the files of the thread that serves the request, and no others."""

from pathlib import Path

from benchmarks.path import files_of_one_request
from loadtest.workload import find_model
from tests.support.onnx_models import write_version


def test_the_path_of_a_request_is_told_by_its_files(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    files = files_of_one_request(find_model(tmp_path, "demo"), tmp_path, rows=5)
    assert {"serving/dataplane/pipeline.py", "serving/engines/batcher.py", "serving/telemetry/recorder.py"} <= set(
        files
    )
    assert len(files) == len(set(files))
    assert not any(file.startswith(("ghostless/v1/", "tests/", ".venv/")) for file in files)
    assert "serving/telemetry/requests.py" not in files, "the recorder works on a thread of its own"
